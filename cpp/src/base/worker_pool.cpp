#include <pthread.h>
#include <signal.h>

#include <condition_variable>
#include <deque>
#include <hotcount/detail/base/worker_pool.hpp>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

namespace hotcount {
namespace {

// A thread inherits the signal mask of the thread that starts it. A destructor restores that mask,
// because std::thread throws when no thread can be started.
class SignalsBlocked {
  public:
    SignalsBlocked() {
        sigset_t all;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

  private:
    sigset_t before_{};
};

}  // namespace

Result<void> spawn_thread(std::function<void()> work) {
    const SignalsBlocked blocked;
    try {
        std::thread(std::move(work)).detach();
    } catch (const std::system_error& refused) {
        return make_error(ErrorCode::capacity, std::string{"the system starts no more threads ("} +
                                                   refused.code().message() + ")");
    } catch (const std::bad_alloc&) {
        return make_error(ErrorCode::capacity, "the system starts no more threads (out of memory)");
    }
    return {};
}

// Outlives the pool while a thread is in the middle of a task.
struct WorkerPool::State {
    explicit State(std::size_t most) : max_threads(most) {}
    const std::size_t max_threads;
    std::mutex mutex{};
    std::condition_variable changed{};
    std::deque<Task> tasks{};
    std::multimap<SteadyTime, Task> timed{};
    std::size_t threads{0};
    std::size_t idle{0};
    bool stop{false};
};

namespace {

thread_local const void* own_state = nullptr;

}  // namespace

WorkerPool::WorkerPool(std::size_t max_threads) : state_(std::make_shared<State>(max_threads)) {}

WorkerPool::~WorkerPool() {
    // Destroyed after the lock is released: a task may own what calls the pool in its destructor.
    std::deque<Task> tasks;
    std::multimap<SteadyTime, Task> timed;
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    tasks.swap(state_->tasks);
    timed.swap(state_->timed);
    state_->changed.notify_all();
}

bool WorkerPool::is_own_thread() const { return own_state == state_.get(); }

// Under the mutex.
Result<void> WorkerPool::add_thread(const std::shared_ptr<State>& state) {
    if (state->threads >= state->max_threads) return {};
    auto spawned = spawn_thread([state] { work(*state, state); });
    if (spawned) {
        ++state->threads;
    } else if (state->threads > 0) {
        return {};  // The threads that there are run the task later.
    }
    return spawned;
}

Result<void> WorkerPool::start() {
    const std::lock_guard lock(state_->mutex);
    if (state_->threads > 0) return {};
    auto added = add_thread(state_);
    if (!added) {
        return make_error(added.error().code, added.error().message + "; nothing was applied");
    }
    return {};
}

void WorkerPool::run(Task task) {
    const std::lock_guard lock(state_->mutex);
    state_->tasks.push_back(std::move(task));
    if (state_->tasks.size() > state_->idle) (void)add_thread(state_);
    state_->changed.notify_one();
}

void WorkerPool::run_at(SteadyTime time, Task task) {
    const std::lock_guard lock(state_->mutex);
    const bool earliest = state_->timed.empty() || time < state_->timed.begin()->first;
    state_->timed.emplace(time, std::move(task));
    if (state_->idle == 0) (void)add_thread(state_);
    // All threads: one that sleeps until what was the earliest time would sleep too long.
    if (earliest) state_->changed.notify_all();
}

void WorkerPool::work(State& state, const std::shared_ptr<State>& shared) {
    own_state = &state;
    std::unique_lock lock(state.mutex);
    while (!state.stop) {
        Task task;
        if (!state.timed.empty() &&
            state.timed.begin()->first <= std::chrono::steady_clock::now()) {
            task = std::move(state.timed.begin()->second);
            state.timed.erase(state.timed.begin());
        } else if (!state.tasks.empty()) {
            task = std::move(state.tasks.front());
            state.tasks.pop_front();
        } else {
            ++state.idle;
            if (state.timed.empty()) {
                state.changed.wait(lock);
            } else {
                const SteadyTime next = state.timed.begin()->first;
                state.changed.wait_until(lock, next);
            }
            --state.idle;
            continue;
        }
        // One thread must wake in time for the next timed task.
        if (!state.timed.empty() && state.idle == 0) (void)add_thread(shared);
        lock.unlock();
        task();
        task = nullptr;  // Its destructor may call the pool, which takes the lock.
        lock.lock();
    }
}

}  // namespace hotcount
