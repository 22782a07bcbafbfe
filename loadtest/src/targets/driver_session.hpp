// A user's own strategy, driven through the protocol of driver_frames.hpp.
//
//   workers --apply()--> a free place of a connection --frame--> the program
//   a thread for each connection <--frame-- the program
//
// The program opens as many connections as it likes and says how many requests it takes at once on
// each. The time limit of a call is kept here, whatever the program does: a call that finds no free
// place in time has failed, one that was sent and has no answer in time is unknown. Its place stays
// taken until the answer comes.
//
// A program that dies, closes a connection or breaks the protocol ends the session: broken() says
// why, and every call after it fails.
//
// apply() is thread-safe. The audit calls drain(), rows() and counts() from one thread.
#pragma once

#include <sys/types.h>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "checkers/checker.hpp"
#include "driver_frames.hpp"
#include "load/driver.hpp"
#include "load/run_folder.hpp"

namespace hotcount::loadtest {

class DriverProgram;
class Target;
struct Strategy;
struct TrialSettings;

/// How long each step may take, but for the calls of the load.
struct DriverBounds {
    Duration connect{std::chrono::seconds{30}};  ///< From its start to all of its connections.
    Duration set_up{std::chrono::minutes{2}};
    Duration page{std::chrono::minutes{1}};    ///< For each page of rows or counts.
    Duration pages{std::chrono::minutes{10}};  ///< For all pages of a request.
    Duration end{std::chrono::seconds{5}};     ///< After `bye`, and again after SIGTERM.
};

struct DriverSettings {
    std::string command{};  ///< As words_of_command() takes it.
    std::string database_url{};
    std::filesystem::path folder{};  ///< Of the run.
    std::uint64_t items{1};
    Duration timeout{std::chrono::seconds{1}};
    bool fresh{true};  ///< False: the program finds the votes of an earlier run.
    DriverBounds bounds{};
};

/// The file in the run's folder with the program's output.
inline constexpr const char* kDriverLog = "driver.log";

class DriverSession final : public Driver {
  public:
    static constexpr std::uint32_t kMostConnections = 1024;
    static constexpr std::uint32_t kMostAtOnce = 1024;  ///< On one connection.

    /// Starts the program and waits until it is ready.
    static Result<std::unique_ptr<DriverSession>> start(DriverSettings settings);
    /// Says bye and waits for the program's end; ends it if that takes too long.
    ~DriverSession() override;

    Answer apply(const Operation& operation) override;
    std::optional<Error> broken() const override;

    const Contract& contract() const { return contract_; }
    /// Where it keeps the votes, in its own words.
    const std::string& place() const { return place_; }
    /// Waits until it has answered everything; false if it has not after `patience`, or is broken.
    bool drain(Duration patience);
    /// Of the items from `first` to `last`, in no order.
    Result<std::vector<VoteRow>> rows(std::int64_t first, std::int64_t last);
    Result<std::vector<ItemCount>> counts(std::int64_t first, std::int64_t last);

  private:
    struct Connection {
        int socket;
        FrameSource source;
        std::mutex sending{};
        std::thread reader{};
        explicit Connection(int taken) : socket(taken), source(taken) {}
    };
    enum class PlaceState : std::uint8_t { free, waiting, answered, abandoned };
    struct Place {
        Connection* connection{nullptr};
        PlaceState state{PlaceState::free};
        std::uint64_t id{0};
        bool reads{false};
        Answer answer{};
        std::condition_variable answered{};
    };
    struct Hello {
        std::uint32_t connections;
        std::uint32_t in_flight;
        bool control;
    };
    enum class Sent : std::uint8_t { yes, not_yet, no };

    // From the end of a connection to that of its process.
    static constexpr std::chrono::milliseconds kDeath{500};

    explicit DriverSession(DriverSettings settings) : settings_(std::move(settings)) {}
    Result<void> begin();
    Result<int> listen_in(const std::filesystem::path& folder);
    Result<void> greet(int listener);
    Result<int> accept_before(int listener, SteadyTime until);
    Result<Hello> take_hello(Connection& connection, SteadyTime until);
    Result<void> set_up(Connection& control);
    void listen_to(Connection& connection);
    Result<void> take_answer(const Connection& connection, const Frame& frame);
    Sent try_send(Connection& connection, const std::string& frame);
    template <class Item, class Read>
    Result<std::vector<Item>> pages(FrameType request, FrameType page, std::int64_t first,
                                    std::int64_t last, std::size_t bytes, const Read& read);
    Result<Frame> control_frame(FrameType wanted);
    void fail(std::string why);
    void release(std::uint32_t place);
    static std::string name_of(FrameType type) { return std::to_string(static_cast<int>(type)); }
    Error about_program(ErrorCode code, const std::string& what) const;

    const DriverSettings settings_;
    std::optional<OwnedFolder> folder_{};
    std::unique_ptr<DriverProgram> program_{};
    Contract contract_{};
    std::string place_{};
    std::vector<std::unique_ptr<Connection>> connections_{};
    Connection* control_{nullptr};

    mutable std::mutex mutex_{};
    std::condition_variable place_free_{};       // Or broken.
    std::condition_variable control_changed_{};  // A frame came or was taken; or broken, or ending.
    std::deque<Place> places_{};
    std::deque<std::uint32_t> free_{};
    std::deque<Frame> control_frames_{};
    std::uint64_t sent_{0};
    std::optional<std::string> broken_{};
    bool ending_{false};
    bool hangs_{false};  // drain() has waited in vain for the program's last answers.
};

/// The target of a strategy of the user's own. `fresh`: it makes its tables; otherwise it finds the
/// tables of an earlier run in the same folder.
Result<std::unique_ptr<Target>> make_exec_target(const TrialSettings& settings,
                                                 const Strategy& strategy,
                                                 const std::filesystem::path& folder, bool fresh);

// -- the program (driver_program.cpp) -------------------------------------------------------------
//
// A strategy of the user's own: its program, started, watched and ended.
//
// The program has a process group of its own, so that Ctrl-C does not reach it before the audit, and
// is ended as a group: SIGTERM, and SIGKILL when it takes too long. It dies with the thread that
// started it (PDEATHSIG). Its output goes to a file: stdout belongs to the report.

class DriverProgram {
  public:
    /// `command`: a program, found as the shell finds it, and its arguments, with spaces between them.
    /// `environment`: variables added to this program's own. `log`: the file for the output.
    static Result<std::unique_ptr<DriverProgram>> start(
        const std::string& command,
        const std::vector<std::pair<std::string, std::string>>& environment,
        std::filesystem::path log);
    /// Ends it at once: a program that is to end by itself is asked before, see wait().
    ~DriverProgram();
    DriverProgram(const DriverProgram&) = delete;
    DriverProgram& operator=(const DriverProgram&) = delete;

    /// Whether it has ended by itself after `patience` at most.
    bool wait(Duration patience);
    /// SIGTERM to all of its processes, SIGKILL after `patience`.
    void end(Duration patience);
    /// "it ended with exit code 3; it wrote: ...", or that it still runs.
    std::string describe() const;

  private:
    DriverProgram(pid_t pid, std::filesystem::path log) : pid_(pid), log_(std::move(log)) {}
    std::string last_words() const;

    const pid_t pid_;
    const std::filesystem::path log_;
    std::optional<int> status_{};  // As waitpid() has it; none: not reaped.
};

/// The words of a command; an error if there are none.
Result<std::vector<std::string>> words_of_command(const std::string& command);

}  // namespace hotcount::loadtest
