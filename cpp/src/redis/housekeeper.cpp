#include "housekeeper.hpp"

#include <pthread.h>
#include <signal.h>

#include <utility>

namespace hotcount::redis {
namespace {

// How long a call waits for somebody to come and drive it.
constexpr Duration kLeavesAlone = std::chrono::milliseconds{50};

// One turn at driving: between two of them jobs are done.
constexpr Duration kTurn = std::chrono::milliseconds{20};

}  // namespace

Housekeeper::~Housekeeper() {
    {
        const std::lock_guard lock(mutex_);
        stop_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
}

void Housekeeper::run(std::function<void()> job) {
    const std::lock_guard lock(mutex_);
    jobs_.push_back(std::move(job));
    begin();
    changed_.notify_all();
}

void Housekeeper::look_after_calls() {
    const std::lock_guard lock(mutex_);
    if (calls_) return;
    calls_ = true;
    if (!thread_.joinable()) driven_until_ = std::chrono::steady_clock::now() + kLeavesAlone;
    begin();
    changed_.notify_all();
}

void Housekeeper::driven() {
    const std::lock_guard lock(mutex_);
    driven_until_ = std::chrono::steady_clock::now() + kLeavesAlone;
}

void Housekeeper::begin() {
    if (thread_.joinable() || stop_) return;
    // A process's signals are for its own threads.
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { work(); });
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Housekeeper::work() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
        if (!jobs_.empty()) {
            const std::function<void()> job = std::move(jobs_.front());
            jobs_.pop_front();
            lock.unlock();
            job();
            lock.lock();
            continue;
        }
        if (!calls_) {
            changed_.wait(lock);
            continue;
        }
        if (driven_until_ > std::chrono::steady_clock::now()) {
            changed_.wait_until(lock, driven_until_);
            continue;
        }
        calls_ = false;
        lock.unlock();
        if (lane_.unwaited() > 0) (void)lane_.run_once(Deadline::after(kTurn));
        const bool more = lane_.unwaited() > 0;
        lock.lock();
        calls_ = calls_ || more;
    }
}

}  // namespace hotcount::redis
