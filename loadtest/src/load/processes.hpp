// Callers in processes of their own, which may be killed or stopped in the middle of a call.
//
//   a worker --a line--> a thread of a process --> the driver that it inherited
//
// A line is a pair of sockets that carries one call or batch at a time, so a call here costs two
// system calls more than one in this process. The ledger stays in this process: a caller that is
// killed leaves an operation whose outcome is unknown.
//
// The processes are forked from this one before the load, and each time one was killed. They end with
// this one.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "driver.hpp"

namespace hotcount::loadtest {

struct ProcessSettings {
    std::uint32_t processes{1};
    std::uint32_t workers{1};  ///< Calls in flight, over all processes.
    Duration kill_every{0};    ///< Interval at which a process is killed and replaced; 0: never.
    Duration stall{0};         ///< Time for which a process is stopped, each in turn; 0: never.
};

class Processes final : public Driver {
  public:
    /// `inner` is what the processes call. It must outlive this and work after a fork.
    static Result<std::unique_ptr<Processes>> start(Driver& inner, const ProcessSettings& settings);
    ~Processes() override;

    /// Sends a read through each line, so that its process connects before the load begins. After a
    /// read that fails no more are sent: the load will report the error.
    void prepare();
    Answer apply(const Operation& operation) override;
    std::vector<Answer> apply_many(std::span<const Operation> operations) override;

    struct Faults {
        std::uint64_t kills{0};
        std::uint64_t stalls{0};
    };
    Faults faults() const { return {kills_.load(), stalls_.load()}; }

  private:
    struct Line {
        int socket;
        std::size_t process;
    };

    Processes(Driver& inner, const ProcessSettings& settings)
        : inner_(inner), settings_(settings) {}

    Result<void> fork_one(std::size_t process);
    [[noreturn]] void serve(std::vector<int> sockets);
    void kill_one(std::size_t process);
    void disturb(const std::stop_token& ended);
    Line take();
    void give_back(Line line, bool broken);

    Driver& inner_;
    const ProcessSettings settings_;
    std::mutex mutex_;
    std::condition_variable free_line_;
    std::vector<Line> idle_;
    std::vector<pid_t> pids_;
    std::size_t lines_{0};  // Idle or taken.
    bool replacing_{false};
    std::atomic<std::uint64_t> kills_{0};
    std::atomic<std::uint64_t> stalls_{0};
    std::jthread disturber_;  // Last: it ends before what it uses.
};

}  // namespace hotcount::loadtest
