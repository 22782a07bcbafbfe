#include "housekeeper.hpp"

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace hotcount::redis {
namespace {

// How long a call waits for somebody to come and drive it.
constexpr Duration kLeavesAlone = std::chrono::milliseconds{50};

// One turn at driving: between two of them jobs are done.
constexpr Duration kTurn = std::chrono::milliseconds{20};

}  // namespace

Housekeeper::Housekeeper(std::shared_ptr<Lane> lane)
    : lane_(std::move(lane)), state_(std::make_shared<State>()) {}

Housekeeper::~Housekeeper() {
    const std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->changed.notify_all();
}

void Housekeeper::run(std::function<void()> job) {
    const std::lock_guard lock(state_->mutex);
    state_->jobs.push_back(std::move(job));
    begin();
    state_->changed.notify_all();
}

void Housekeeper::look_after_calls() {
    const std::lock_guard lock(state_->mutex);
    if (state_->calls) return;
    state_->calls = true;
    if (!state_->begun) {
        state_->driven_until = std::chrono::steady_clock::now() + kLeavesAlone;
    }
    begin();
    state_->changed.notify_all();
}

void Housekeeper::driven() {
    const std::lock_guard lock(state_->mutex);
    state_->driven_until = std::chrono::steady_clock::now() + kLeavesAlone;
}

void Housekeeper::begin() {
    if (state_->begun) return;
    state_->begun = true;
    // A process's signals are for its own threads.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread([state = state_, lane = lane_] { work(*state, *lane); }).detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Housekeeper::work(State& state, Lane& lane) {
    std::unique_lock lock(state.mutex);
    while (!state.stop) {
        if (!state.jobs.empty()) {
            const std::function<void()> job = std::move(state.jobs.front());
            state.jobs.pop_front();
            lock.unlock();
            job();
            lock.lock();
            continue;
        }
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
