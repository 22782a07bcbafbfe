// The thread that drives a shared connection while no thread of the application does.
#pragma once

#include <atomic>
#include <condition_variable>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>

#include "shared_connection.hpp"

namespace hotcount::redis {

/// A client's own thread: it sends and receives on the shared connection for asynchronous calls
/// while the application has not called run_once() for 50 ms. It starts with the first asynchronous
/// call, and never touches Python.
///
/// Thread-safe. Per process: a forked child starts its own thread with its first asynchronous call.
class BackgroundThread {
  public:
    /// `alone`: the application never drives the connection, so the thread does not wait 50 ms
    /// first.
    explicit BackgroundThread(std::shared_ptr<SharedConnection> connection, bool alone = false);
    /// Does not join the thread, which keeps the connection until its turn of at most 20 ms has
    /// ended.
    ~BackgroundThread();
    BackgroundThread(const BackgroundThread&) = delete;
    BackgroundThread& operator=(const BackgroundThread&) = delete;

    /// Starts the thread unless it runs. Fails with a capacity error if the system refuses a
    /// thread.
    Result<void> start();
    /// Wakes the thread for asynchronous calls. Only after start() has succeeded once.
    void look_after_calls();
    /// The application drives the connection: the thread leaves it alone for 50 ms.
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
