#include "waiting_calls.hpp"

#include <algorithm>
#include <deque>
#include <hotcount/detail/base/worker_pool.hpp>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace hotcount {
namespace {

// Each look is at the whole queue.
constexpr Duration kBetweenLooks = std::chrono::milliseconds{1};

}  // namespace

// Lives as long as one of its threads is busy.
struct WaitingCalls::State : std::enable_shared_from_this<State> {
    State(std::string title, std::size_t threads, std::size_t most)
        : name(std::move(title)), max_busy(threads), max_waiting(most), pool(threads + 1) {}

    // Makes calls until none waits.
    void work_off() {
        while (true) {
            Call call;
            {
                const std::lock_guard lock(mutex);
                if (queue.empty()) {
                    --busy;
                    return;
                }
                call = std::move(queue.front());
                queue.pop_front();
            }
            if (call.cancelled == nullptr || !*call.cancelled) call.work();
        }
    }

    // Refuses those that are late. There is one timer for all: calls may be any number a second, and
    // few are late.
    void look(SteadyTime planned) {
        std::vector<Call> late;  // What they hold ends without the mutex.
        {
            const std::lock_guard lock(mutex);
            if (planned != next_look) return;  // Another one looks sooner, or has.
            next_look = SteadyTime::max();
            const SteadyTime now = std::chrono::steady_clock::now();
            const auto is_in_time = [now](const Call& call) { return call.deadline.time() > now; };
            const auto first_late = std::stable_partition(queue.begin(), queue.end(), is_in_time);
            late.assign(std::move_iterator(first_late), std::move_iterator(queue.end()));
            queue.erase(first_late, queue.end());
            SteadyTime next = SteadyTime::max();
            for (const Call& call : queue) next = std::min(next, call.deadline.time());
            look_at(std::max(next, now + kBetweenLooks));
        }
        for (const Call& call : late) {
            call.refuse(make_error(ErrorCode::deadline,
                                   name + ": all " + std::to_string(max_busy) +
                                       " threads for calls that wait were busy and the deadline "
                                       "passed; nothing was applied"));
        }
    }

    // Under the mutex.
    void look_at(SteadyTime time) {
        if (queue.empty() || time >= next_look) return;
        next_look = time;
        pool.run_at(time, [held = weak_from_this(), time] {
            if (const auto owner = held.lock()) owner->look(time);
        });
    }

    const std::string name;
    const std::size_t max_busy;
    const std::size_t max_waiting;
    std::mutex mutex{};
    std::deque<Call> queue{};
    std::size_t busy{0};
    SteadyTime next_look{SteadyTime::max()};
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
    const auto queued = [&]() -> Result<void> {
        const std::lock_guard lock(state.mutex);
        if (state.queue.size() >= state.max_waiting) {
            return make_error(ErrorCode::capacity,
                              state.name + ": " + std::to_string(state.max_waiting) +
                                  " calls are waiting (max_queue); nothing was applied");
        }
        HOTCOUNT_TRY(state.pool.start());
        const SteadyTime late = call.deadline.time();
        state.queue.push_back(std::move(call));
        if (state.busy < state.max_busy) {
            ++state.busy;
            state.pool.run([held = state_] { held->work_off(); });
        } else {
            state.look_at(late);
        }
        return {};
    }();
    if (!queued) call.refuse(queued.error());
}

}  // namespace hotcount
