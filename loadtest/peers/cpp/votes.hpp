// The parts of hotcount-peers-votes: its settings, the voters of a process (voters.cpp), and the
// processes with the memory that they share (processes.cpp).
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <string>
#include <vector>

namespace hotcount::peers {

constexpr Duration kTimeout = std::chrono::seconds{60};

struct Settings {
    std::string url{};
    std::string strategy{"batched"};
    int processes{1};
    int callers{1};
    std::int64_t items{1};
    double zipf{0.99};
    double reads{0};
    double seconds{2};
    double warm_up{0.4};
    std::uint64_t seed{1};
    bool aside{false};
    bool hold{false};
};

// -- voters.cpp -----------------------------------------------------------------------------------

/// The state that the callers of a process share, for each strategy. settings.callers threads may
/// call it at once. A failed call returns the library's error.
class Voters {
  public:
    virtual ~Voters() = default;
    virtual Result<void> vote(std::int64_t item, std::int64_t user) = 0;
    virtual void vote_async(std::int64_t item, std::int64_t user, Completion<Cast> done) = 0;
    virtual Result<std::int64_t> count(std::int64_t item) = 0;
};

/// A connection for each caller. The process that opens it must not fork afterwards.
Result<std::shared_ptr<sql::Database>> open_database(const Settings& settings);
Result<std::shared_ptr<Votes>> make_votes(const std::shared_ptr<sql::Database>& database,
                                          const std::string& strategy);
Result<std::unique_ptr<Voters>> make_voters(const Settings& settings);

// -- processes.cpp --------------------------------------------------------------------------------

std::int64_t now_ns();
std::int64_t in_ns(double seconds);
/// How many cells a histogram on the board has.
std::size_t histogram_cells();

/// Votes for this item do not wait if --aside is given.
constexpr std::int64_t kAsideItem = 1;

using Number = std::atomic<std::uint64_t>;

/// The state that all processes share: memory that is mapped before they are forked.
class Board {
  public:
    struct State {
        std::atomic<bool> tables_made{false};
        std::atomic<int> ready{0};
        std::atomic<bool> go{false};
        std::atomic<std::int64_t> opens_ns{INT64_MAX};
        std::atomic<std::int64_t> closes_ns{INT64_MAX};
        Number votes{0}, reads{0};  ///< Answered between opens_ns and closes_ns.
        Number aside_sent{0}, aside_landed{0}, aside_diverted{0}, aside_worst_ns{0};
        std::atomic<bool> failed{false};
        char error[1024]{};
    };

    explicit Board(std::int64_t items);
    Board(const Board&) = delete;
    Board& operator=(const Board&) = delete;
    ~Board();

    State* operator->() const { return state_; }
    /// Votes acknowledged for an item, by all processes so far.
    Number& acknowledged(std::int64_t item) const { return numbers_[item]; }
    Number* vote_cells() const { return numbers_ + items_; }
    Number* read_cells() const { return vote_cells() + histogram_cells(); }

    /// The run has failed, for this reason; the first reason is kept.
    void fail(const std::string& why) const;

  private:
    std::size_t items_;
    std::size_t size_{};
    void* memory_{};
    State* state_{};
    Number* numbers_{};
};

/// The processes. Those that still run when this object ends are killed.
class Children {
  public:
    /// Forks them. Each opens its own connections and runs until the board's closes_ns.
    Children(const Settings& settings, const Board& board);
    Children(const Children&) = delete;
    Children& operator=(const Children&) = delete;
    ~Children();

    /// Collects processes that have ended. An early or failed end fails the run.
    void check(const Board& board);
    bool ended() const { return pids_.empty(); }

  private:
    bool collect(int how);

    std::vector<pid_t> pids_{};
};

}  // namespace hotcount::peers
