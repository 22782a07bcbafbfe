#include "background_thread.hpp"

#include <utility>

#include "base/spawn_thread.hpp"

namespace hotcount::redis {
namespace {

// How long a call waits for somebody to come and drive it.
constexpr Duration kLeavesAlone = std::chrono::milliseconds{50};

// One turn at driving: between two of them somebody else may have come to drive.
constexpr Duration kTurn = std::chrono::milliseconds{20};

}  // namespace

Housekeeper::Housekeeper(std::shared_ptr<Lane> lane)
    : lane_(std::move(lane)), state_(std::make_shared<State>()) {}

Housekeeper::~Housekeeper() {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->changed.notify_all();
}

void Housekeeper::look_after_calls() {
    const std::lock_guard lock(state_->mutex);
    if (state_->calls) return;
    state_->calls = true;
    state_->changed.notify_all();
}

void Housekeeper::driven() {
    const std::lock_guard lock(state_->mutex);
    state_->driven_until = std::chrono::steady_clock::now() + kLeavesAlone;
}

Result<void> Housekeeper::start() {
    if (begun_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(state_->mutex);
    if (begun_.load(std::memory_order_relaxed)) return {};
    HOTCOUNT_TRY(spawn_background_thread([state = state_, lane = lane_] { work(*state, *lane); }));
    state_->driven_until = std::chrono::steady_clock::now() + kLeavesAlone;
    begun_.store(true, std::memory_order_release);
    return {};
}

void Housekeeper::work(State& state, Lane& lane) {
    std::unique_lock lock(state.mutex);
    while (!state.stop) {
        if (!state.calls) {
            state.changed.wait(lock);
            continue;
        }
        if (state.driven_until > std::chrono::steady_clock::now()) {
            state.changed.wait_until(lock, state.driven_until);
            continue;
        }
        state.calls = false;
        lock.unlock();
        if (lane.unwaited() > 0) (void)lane.run_once(Deadline::after(kTurn));
        const bool more = lane.unwaited() > 0;
        lock.lock();
        state.calls = state.calls || more;
    }
}

}  // namespace hotcount::redis
