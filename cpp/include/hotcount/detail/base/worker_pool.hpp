// A few threads that do what is handed to them, in the order in which it came.
//
// A thread starts when there is something to do and no other is free, up to the bound, and lasts
// until the pool goes. They take no signals: a process's signals are for its own threads.
// Thread-safe. A forked child has none of the threads: owners keep a pool in a ForkLocal.
#pragma once

#include <cstddef>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <memory>

namespace hotcount {

class WorkerPool {
  public:
    /// Must not throw. It holds what it needs: the pool's owner may be gone when it runs.
    using Task = std::function<void()>;

    explicit WorkerPool(std::size_t max_threads);
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;
    /// Drops what has not begun and waits for nothing: a thread in mid-task ends after it. So a
    /// task may be what destroys the pool.
    ~WorkerPool();

    /// Sees to it that there is a thread; a capacity error where the system gives none.
    Result<void> start();
    /// After start() has succeeded once.
    void run(Task task);
    /// The same, not before `time`; later where all threads are busy then.
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
