#include <chrono>
#include <hotcount/detail/base/worker_pool.hpp>
#include <utility>

#include "shared_connection.hpp"

namespace hotcount::redis {
namespace {

// How long a call waits for a caller of run_once().
constexpr Duration kLeavesAlone = std::chrono::milliseconds{50};

// How long the thread drives at a time: between two turns another thread may call run_once().
constexpr Duration kTurn = std::chrono::milliseconds{20};

}  // namespace

BackgroundThread::BackgroundThread(std::shared_ptr<SharedConnection> connection, bool alone)
    : connection_(std::move(connection)), state_(std::make_shared<State>()), alone_(alone) {}

BackgroundThread::~BackgroundThread() {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->changed.notify_all();
}

void BackgroundThread::look_after_calls() {
    const std::lock_guard lock(state_->mutex);
    if (state_->calls) return;
    state_->calls = true;
    state_->changed.notify_all();
}

void BackgroundThread::driven() {
    const std::lock_guard lock(state_->mutex);
    state_->driven_until = std::chrono::steady_clock::now() + kLeavesAlone;
}

Result<void> BackgroundThread::start() {
    if (begun_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(state_->mutex);
    if (begun_.load(std::memory_order_relaxed)) return {};
    HOTCOUNT_TRY(
        spawn_thread([state = state_, connection = connection_] { work(*state, *connection); }));
    if (!alone_) state_->driven_until = std::chrono::steady_clock::now() + kLeavesAlone;
    begun_.store(true, std::memory_order_release);
    return {};
}

void BackgroundThread::work(State& state, SharedConnection& connection) {
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
        if (connection.unwaited() > 0) (void)connection.run_once(Deadline::after(kTurn));
        const bool more = connection.unwaited() > 0;
        lock.lock();
        state.calls = state.calls || more;
    }
}

}  // namespace hotcount::redis
