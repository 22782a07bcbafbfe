// The thread that drives a shared connection while nobody else does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>

#include "shared_connection.hpp"

namespace hotcount::redis {

/// A client's own thread: it sends and receives on the shared connection for calls that nobody waits
/// for, when nobody has called run_once() for 50 ms. It starts with the first such call, and never
/// touches Python.
///
/// Thread-safe. Per process: a forked child has no thread until it needs one.
class BackgroundThread {
  public:
    /// `alone`: nobody else drives the connection.
    explicit BackgroundThread(std::shared_ptr<SharedConnection> connection, bool alone = false);
    /// Does not wait for the thread, which ends what it is doing and keeps the connection until then.
    ~BackgroundThread();
    BackgroundThread(const BackgroundThread&) = delete;
    BackgroundThread& operator=(const BackgroundThread&) = delete;

    /// Makes sure that there is a thread; a capacity error if the system starts none.
    Result<void> start();
    /// There are calls that nobody waits for. Only after start() has succeeded once.
    void look_after_calls();
    /// Somebody else drives the connection: the thread leaves it alone for 50 ms.
    void driven();

  private:
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        bool calls{false};
        bool stop{false};
        SteadyTime driven_until{};
    };
    static void work(State& state, SharedConnection& connection);

    const std::shared_ptr<SharedConnection> connection_;
    const std::shared_ptr<State> state_;
    const bool alone_;
    std::atomic<bool> begun_{false};
};

}  // namespace hotcount::redis
