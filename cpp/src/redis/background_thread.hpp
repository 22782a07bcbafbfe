// A client's own thread, begun when it is first needed: it drives the shared lane for calls that
// nobody waits for while nobody calls run_once(). It never touches Python.
//
// Per process: a forked child has none until it needs one. Thread-safe.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>

#include "shared_connection.hpp"

namespace hotcount::redis {

class Housekeeper {
  public:
    explicit Housekeeper(std::shared_ptr<Lane> lane);
    /// Does not wait for the thread: what that is in the middle of it ends by itself, and keeps the
    /// lane until then.
    ~Housekeeper();
    Housekeeper(const Housekeeper&) = delete;
    Housekeeper& operator=(const Housekeeper&) = delete;

    /// Sees to it that there is a thread; a capacity error where the system gives none.
    Result<void> start();
    /// There are calls that nobody waits for. After start() has succeeded once.
    void look_after_calls();
    /// Somebody drives the lane: the thread leaves it alone for a while.
    void driven();

  private:
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        bool calls{false};
        bool stop{false};
        SteadyTime driven_until{};
    };
    static void work(State& state, Lane& lane);

    const std::shared_ptr<Lane> lane_;
    const std::shared_ptr<State> state_;
    std::atomic<bool> begun_{false};
};

}  // namespace hotcount::redis
