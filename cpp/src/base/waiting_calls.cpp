#include "waiting_calls.hpp"

#include <algorithm>
#include <deque>
#include <hotcount/detail/base/worker_pool.hpp>
#include <iterator>
#include <mutex>
#include <utility>
#include <vector>

namespace hotcount {

// Lives as long as one of its threads is busy.
struct WaitingCalls::State : std::enable_shared_from_this<State> {
    State(std::string title, std::size_t threads, std::size_t most)
        : name(std::move(title)), max_busy(threads), max_waiting(most), pool(threads + 1) {}

    // Makes calls until none waits.
    void work_off() {
        while (true) {
            std::shared_ptr<Call> call;
            {
                const std::lock_guard lock(mutex);
                while (!queue.empty() && call == nullptr) {
                    if (begin(*queue.front())) call = std::move(queue.front());
                    queue.pop_front();
                }
                if (call == nullptr) {
                    --busy;
                    return;
                }
            }
            if (call->cancelled == nullptr || !*call->cancelled) call->work();
        }
    }

    void expire(Call& call) {
        std::vector<std::shared_ptr<Call>> gone;  // What they hold ends without the mutex.
        {
            const std::lock_guard lock(mutex);
            if (!begin(call)) return;
            // Those that are late would else be in the queue until all before them are made, and
            // they may be any number.
            if (2 * waiting < queue.size()) {
                const auto late = std::stable_partition(
                    queue.begin(), queue.end(), [](const auto& each) { return !each->begun; });
                gone.assign(std::move_iterator(late), std::move_iterator(queue.end()));
                queue.erase(late, queue.end());
            }
        }
        call.refuse(make_error(ErrorCode::deadline,
                               name + ": all " + std::to_string(max_busy) +
                                   " threads for calls that wait were busy and the deadline "
                                   "passed; nothing was applied"));
    }

    // Under the mutex: whether the call is the caller's to make or to refuse.
    bool begin(Call& call) {
        if (std::exchange(call.begun, true)) return false;
        --waiting;
        return true;
    }

    const std::string name;
    const std::size_t max_busy;
    const std::size_t max_waiting;
    std::mutex mutex{};
    std::deque<std::shared_ptr<Call>> queue{};  // At most half of them were late.
    std::size_t waiting{0};
    std::size_t busy{0};
    WorkerPool pool;  // One thread more than may be busy, for those that are late.
};

WaitingCalls::WaitingCalls(std::string name, std::size_t threads, std::size_t max_waiting)
    : state_(std::make_shared<State>(std::move(name), threads, max_waiting)) {}

WaitingCalls::~WaitingCalls() = default;

void WaitingCalls::add(Call call) {
    State& state = *state_;
    const auto kept = std::make_shared<Call>(std::move(call));
    const auto queued = [&]() -> Result<void> {
        const std::lock_guard lock(state.mutex);
        if (state.waiting >= state.max_waiting) {
            return make_error(ErrorCode::capacity,
                              state.name + ": " + std::to_string(state.max_waiting) +
                                  " calls are waiting (max_queue); nothing was applied");
        }
        HOTCOUNT_TRY(state.pool.start());
        state.queue.push_back(kept);
        ++state.waiting;
        if (state.busy < state.max_busy) {
            ++state.busy;
            state.pool.run([held = state_] { held->work_off(); });
        } else {
            state.pool.run_at(kept->deadline.time(),
                              [held = std::weak_ptr{state_}, late = std::weak_ptr{kept}] {
                                  const auto owner = held.lock();
                                  const auto waits = late.lock();
                                  if (owner != nullptr && waits != nullptr) owner->expire(*waits);
                              });
        }
        return {};
    }();
    if (!queued) kept->refuse(queued.error());
}

}  // namespace hotcount
