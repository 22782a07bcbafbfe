#include <hotcount/detail/base/waiting_calls.hpp>

#include <algorithm>
#include <atomic>
#include <deque>
#include <hotcount/detail/base/worker_pool.hpp>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace hotcount {
namespace {

// Between two searches for late calls. Each goes through the whole queue.
constexpr Duration kBetweenSearches = std::chrono::milliseconds{1};

}  // namespace

// Lives as long as one of its threads is busy.
struct WaitingCalls::State : std::enable_shared_from_this<State> {
    State(std::string title, std::size_t threads, std::size_t most)
        : name(std::move(title)), max_busy(threads), max_waiting(most), pool(threads + 1) {}

    // A free thread, if there is one; without the mutex. While calls are queued there is none, because
    // work_off() frees a thread under the mutex and only if the queue is empty.
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

    // Makes the call, and others until none waits.
    void work_off(Call call) {
        while (true) {
            make(call);
            call = {};  // What it held ends without the mutex.
            const std::lock_guard lock(mutex);
            if (queue.empty()) {
                --busy;
                return;
            }
            call = std::move(queue.front());
            queue.pop_front();
        }
    }

    // Refuses those that are late. There is one timer for all: calls may be any number a second, and
    // few are late.
    void refuse_late(SteadyTime planned) {
        std::vector<Call> late;  // What they hold ends without the mutex.
        {
            const std::lock_guard lock(mutex);
            if (planned != next_search) return;  // An earlier one took its place.
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

    // Under the mutex.
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
    WorkerPool pool;  // One thread more than may be busy, for those that are late.
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
    // Without the mutex: the thread that wakes wants it soon.
    if (*begun) {
        state.pool.run(
            [held = state_, call = std::move(call)]() mutable { held->work_off(std::move(call)); });
    }
}

}  // namespace hotcount
