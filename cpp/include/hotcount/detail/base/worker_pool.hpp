// Threads of the library: one by itself; a pool that runs tasks in the order in which they came;
// WaitingCalls, a pool for calls that block; HelperThreads, which share one caller's work. They
// block all signals, which are for the threads of the application.
//
// Thread-safe but for HelperThreads. A forked child has none of the threads: owners keep a pool in
// a ForkLocal.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace hotcount {

/// A new thread that blocks all signals. Throws as std::thread does.
std::thread start_thread(std::function<void()> work);

/// Runs `work` in a new detached thread. A capacity error if the system starts no more
/// threads (RLIMIT_NPROC, memory, a cgroup's pids.max); `work` was not run then.
[[nodiscard]] Result<void> spawn_thread(std::function<void()> work);

/// A thread starts when there is a task and no thread is free, up to the bound, and lasts until the
/// pool goes.
class WorkerPool {
  public:
    /// Must not throw. It must hold what it needs: the pool's owner may be gone when it runs.
    using Task = std::function<void()>;

    explicit WorkerPool(std::size_t max_threads);
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;
    /// Drops tasks that have not begun, and does not wait: a thread in the middle of a task ends
    /// after it. So a task may destroy the pool.
    ~WorkerPool();

    /// Makes sure that there is a thread; a capacity error if the system starts none.
    Result<void> start();
    /// After start() has succeeded once.
    void run(Task task);
    /// The same, not before `time`; later if all threads are busy then.
    void run_at(SteadyTime time, Task task);
    /// Whether the calling thread is one of the pool's.
    bool is_own_thread() const;

  private:
    struct State;
    static Result<void> add_thread(const std::shared_ptr<State>& state);
    static void work(State& state, const std::shared_ptr<State>& shared);

    std::shared_ptr<State> state_;
};

/// Runs blocking calls in threads of the library.
///
///   run() --> queue --> at most `threads` of them at a time, in order: work()
///                `----> a deadline error if no thread was free by the deadline: it was not begun
///
/// A call does not block its caller, and takes no thread while it is queued. Thread-safe. A forked
/// child has none of the threads: owners keep this in a ForkLocal. Queued calls run even after this
/// object is destroyed, so they must hold the objects that they use.
class WaitingCalls {
  public:
    /// `name`: the name of the server in errors. When `max_waiting` calls are queued, one more is a
    /// capacity error.
    WaitingCalls(std::string name, std::size_t threads, std::size_t max_waiting);
    WaitingCalls(const WaitingCalls&) = delete;
    WaitingCalls& operator=(const WaitingCalls&) = delete;
    ~WaitingCalls();

    /// `work` must return by the deadline, and must not throw. A thread of the library calls
    /// `done`; if the call cannot begin, `done` is called before run() returns. If *cancelled is
    /// true before the call's turn, the call is dropped; `cancelled` must live as long as `done`.
    template <class T>
    void run(Deadline deadline, const std::atomic<bool>* cancelled, Completion<T> done,
             std::function<Result<T>()> work) {
        add({.work = [work = std::move(work), done] { done(work()); },
             .refuse = [done](Error error) { done(std::move(error)); },
             .deadline = deadline,
             .cancelled = cancelled});
    }

    /// run() for a call whose `work` reports its outcome by itself.
    void run(Deadline deadline, std::function<void()> work, std::function<void(Error)> refuse);

  private:
    struct Call {
        std::function<void()> work{};
        std::function<void(Error)> refuse{};
        Deadline deadline{Deadline::at(SteadyTime::max())};
        const std::atomic<bool>* cancelled{nullptr};
    };
    struct State;
    void add(Call call);

    std::shared_ptr<State> state_;
};

/// Threads that share the work of the thread that starts them, such as the pages of one round.
///
/// If the starting thread is interrupted while it waits for them (interrupt.hpp), they are
/// interrupted too: an abandoned round ends within kInterruptSlice, however long its servers stand
/// still. One thread uses the object; the destructor joins.
class HelperThreads {
  public:
    HelperThreads() = default;
    HelperThreads(const HelperThreads&) = delete;
    HelperThreads& operator=(const HelperThreads&) = delete;
    ~HelperThreads() { join(); }

    /// False if the system starts no more threads; those that run do the work. `work` must not
    /// throw.
    bool start(std::function<void()> work);
    /// Waits until each thread has ended.
    void join();

  private:
    std::atomic<bool> interrupted_{false};
    std::mutex mutex_{};
    std::condition_variable ended_{};
    std::size_t running_{0};
    std::vector<std::thread> threads_{};
};

}  // namespace hotcount
