// Threads of the library: one by itself, or a pool of a few that run tasks in the order in which they
// came. They block all signals: a process's signals are for its own threads.
//
// Thread-safe. A forked child has none of the threads: owners keep a pool in a ForkLocal.
#pragma once

#include <cstddef>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <memory>

namespace hotcount {

/// Runs `work` in a new thread that nobody joins. A capacity error if the system starts no more threads
/// (RLIMIT_NPROC, memory, a cgroup's pids.max); `work` was not run then.
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
    /// Drops tasks that have not begun, and does not wait: a thread in the middle of a task ends after
    /// it. So a task may destroy the pool.
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

}  // namespace hotcount
