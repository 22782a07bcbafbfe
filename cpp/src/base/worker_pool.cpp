#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace hotcount {
namespace {

thread_local int completion_depth = 0;
thread_local std::vector<std::function<void()>> after_them;

// Blocks all signals while a thread is started, because the thread inherits the mask. The
// destructor restores the mask, also when std::thread throws.
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

std::thread start_thread(std::function<void()> work) {
    const SignalsBlocked blocked;
    return std::thread(std::move(work));
}

Result<void> spawn_thread(std::function<void()> work) {
    try {
        start_thread(std::move(work)).detach();
    } catch (const std::system_error& refused) {
        return make_error(ErrorCode::capacity, std::string{"the system starts no more threads ("} +
                                                   refused.code().message() + ")");
    } catch (const std::bad_alloc&) {
        return make_error(ErrorCode::capacity, "the system starts no more threads (out of memory)");
    }
    return {};
}

// Outlives the pool while a thread runs a task.
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
    // Destroyed after the lock is released: a task may own an object that calls the pool when it
    // is destroyed.
    std::deque<Task> tasks;
    std::multimap<SteadyTime, Task> timed;
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    tasks.swap(state_->tasks);
    timed.swap(state_->timed);
    state_->changed.notify_all();
}

bool WorkerPool::is_own_thread() const { return own_state == state_.get(); }

// Requires the mutex.
Result<void> WorkerPool::add_thread(const std::shared_ptr<State>& state) {
    if (state->threads >= state->max_threads) return {};
    auto spawned = spawn_thread([state] { work(*state, state); });
    if (spawned) {
        ++state->threads;
    } else if (state->threads > 0) {
        return {};  // An existing thread runs the task later.
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
    // Wakes all threads: one of them sleeps until the previous earliest time.
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
        // An idle thread must be left to wake for the next timed task.
        if (!state.timed.empty() && state.idle == 0) (void)add_thread(shared);
        lock.unlock();
        task();
        task = nullptr;  // Its destructor may call the pool, which takes the lock.
        lock.lock();
    }
}

namespace {

// Least time between two searches for late calls; each reads the whole queue.
constexpr Duration kBetweenSearches = std::chrono::milliseconds{1};

}  // namespace

// Outlives WaitingCalls while one of its threads is busy.
struct WaitingCalls::State : std::enable_shared_from_this<State> {
    State(std::string title, std::size_t threads, std::size_t most)
        : name(std::move(title)), max_busy(threads), max_waiting(most), pool(threads + 1) {}

    // Takes a free thread if there is one; needs no mutex. No thread is free while calls are
    // queued, because work_off() frees a thread under the mutex and only if the queue is empty.
    bool take_thread() {
        std::size_t before = busy.load(std::memory_order_relaxed);
        while (before < max_busy) {
            if (busy.compare_exchange_weak(before, before + 1)) return true;
        }
        return false;
    }

    static void make(const Call& call) {
        if (call.cancelled == nullptr || !*call.cancelled) call.work();
    }

    // Makes the call, then queued calls until the queue is empty.
    void work_off(Call call) {
        while (true) {
            make(call);
            call = {};  // Destroyed without the mutex.
            const std::lock_guard lock(mutex);
            if (queue.empty()) {
                --busy;
                return;
            }
            call = std::move(queue.front());
            queue.pop_front();
        }
    }

    // Refuses late calls. All calls share one timer, because there may be very many of them and few
    // are late.
    void refuse_late(SteadyTime planned) {
        std::vector<Call> late;  // Destroyed without the mutex.
        {
            const std::lock_guard lock(mutex);
            if (planned != next_search) return;  // An earlier search has replaced this one.
            next_search = SteadyTime::max();
            const SteadyTime now = std::chrono::steady_clock::now();
            const auto is_in_time = [now](const Call& call) { return call.deadline.time() > now; };
            const auto first_late = std::stable_partition(queue.begin(), queue.end(), is_in_time);
            late.assign(std::move_iterator(first_late), std::move_iterator(queue.end()));
            queue.erase(first_late, queue.end());
            SteadyTime next = SteadyTime::max();
            for (const Call& call : queue) next = std::min(next, call.deadline.time());
            search_at(std::max(next, now + kBetweenSearches));
        }
        for (const Call& call : late) {
            call.refuse(make_error(ErrorCode::deadline,
                                   name +
                                       ": no thread for calls that wait was free before the "
                                       "deadline (" +
                                       std::to_string(max_busy) + " busy); nothing was applied"));
        }
    }

    // Requires the mutex.
    void search_at(SteadyTime time) {
        if (queue.empty() || time >= next_search) return;
        next_search = time;
        pool.run_at(time, [held = weak_from_this(), time] {
            if (const auto owner = held.lock()) owner->refuse_late(time);
        });
    }

    const std::string name;
    const std::size_t max_busy;
    const std::size_t max_waiting;
    std::mutex mutex{};
    std::deque<Call> queue{};  // Empty unless all threads are busy.
    std::atomic<std::size_t> busy{0};
    std::atomic<bool> started{false};  // The pool has a thread.
    SteadyTime next_search{SteadyTime::max()};
    WorkerPool pool;  // One thread more than max_busy, which refuses late calls.
};

WaitingCalls::WaitingCalls(std::string name, std::size_t threads, std::size_t max_waiting)
    : state_(std::make_shared<State>(std::move(name), threads, max_waiting)) {}

WaitingCalls::~WaitingCalls() = default;

void WaitingCalls::run(Deadline deadline, std::function<void()> work,
                       std::function<void(Error)> refuse) {
    add({std::move(work), std::move(refuse), deadline, nullptr});
}

void WaitingCalls::add(Call call) {
    State& state = *state_;
    const auto begin = [&]() -> Result<bool> {
        if (state.started.load(std::memory_order_acquire) && state.take_thread()) return true;
        const std::lock_guard lock(state.mutex);
        if (!state.started.load(std::memory_order_relaxed)) HOTCOUNT_TRY(state.pool.start());
        state.started.store(true, std::memory_order_release);
        if (state.take_thread()) return true;
        if (state.queue.size() >= state.max_waiting) {
            return make_error(ErrorCode::capacity,
                              state.name + ": " + std::to_string(state.max_waiting) +
                                  " calls are waiting (max_queue); nothing was applied");
        }
        const SteadyTime late = call.deadline.time();
        state.queue.push_back(std::move(call));
        state.search_at(late);
        return false;
    };
    const auto begun = begin();
    if (!begun) return call.refuse(begun.error());
    // Called without the mutex, because the woken thread takes it at once.
    if (*begun) {
        state.pool.run(
            [held = state_, call = std::move(call)]() mutable { held->work_off(std::move(call)); });
    }
}

CompletionBatch::CompletionBatch() { ++completion_depth; }

CompletionBatch::~CompletionBatch() {
    if (--completion_depth > 0) return;
    for (const auto& work : std::exchange(after_them, {})) work();
}

void after_completions(std::function<void()> work) {
    if (completion_depth > 0) {
        after_them.push_back(std::move(work));
    } else {
        work();
    }
}

}  // namespace hotcount
