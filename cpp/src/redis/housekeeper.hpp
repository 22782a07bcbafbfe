// A client's own thread, begun when it is first needed: it opens connections for event loops, which
// must not block, and drives the shared lane for calls that nobody waits for while nobody calls
// run_once(). It never touches Python.
//
// Per process: a forked child has none until it needs one. Thread-safe.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <hotcount/base/clock.hpp>
#include <mutex>
#include <thread>

#include "lane.hpp"

namespace hotcount::redis {

class Housekeeper {
  public:
    explicit Housekeeper(Lane& lane) : lane_(lane) {}
    ~Housekeeper();
    Housekeeper(const Housekeeper&) = delete;
    Housekeeper& operator=(const Housekeeper&) = delete;

    /// Runs it in the thread, after those before it.
    void run(std::function<void()> job);
    /// There are calls that nobody waits for.
    void look_after_calls();
    /// Somebody drives the lane: the thread leaves it alone for a while.
    void driven();

  private:
    void begin();
    void work();

    Lane& lane_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::function<void()>> jobs_;
    bool calls_{false};
    bool stop_{false};
    SteadyTime driven_until_{};
    std::thread thread_;
};

}  // namespace hotcount::redis
