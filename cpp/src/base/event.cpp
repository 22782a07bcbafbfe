#include <hotcount/detail/base/event.hpp>
#include <hotcount/detail/base/interrupt.hpp>

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <ctime>
#else
#include <condition_variable>
#include <mutex>
#endif

namespace hotcount {

#ifdef __linux__

namespace {

// The atomic's address is the futex word; both are 32 bits and lock-free.
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value,
           const timespec* timeout, std::uint32_t places = FUTEX_BITSET_MATCH_ANY) {
    return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, timeout,
                   nullptr, places);
}

// Sleeps until it is woken, a signal comes or the time has passed.
void sleep_while(std::atomic<std::uint32_t>* word, std::uint32_t value, SteadyTime until,
                 std::uint32_t places = FUTEX_BITSET_MATCH_ANY) {
    // FUTEX_WAIT_BITSET takes an absolute time on CLOCK_MONOTONIC: steady_clock on Linux.
    const auto since_epoch = until.time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_epoch);
    const timespec time{static_cast<std::time_t>(seconds.count()),
                        static_cast<long>((since_epoch - seconds).count())};
    futex(word, FUTEX_WAIT_BITSET_PRIVATE, value, &time, places);
}

}  // namespace

void Event::set() {
    if (state_.exchange(kSet, std::memory_order_acq_rel) == kWaiting) {
        futex(&state_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr);
    }
}

bool Event::wait(Deadline deadline) {
    while (true) {
        std::uint32_t state = state_.load(std::memory_order_acquire);
        if (state == kSet) return true;
        if (state == kUnset &&
            !state_.compare_exchange_strong(state, kWaiting, std::memory_order_acq_rel)) {
            continue;
        }
        sleep_while(&state_, kWaiting, next_check(deadline));
        if (is_set()) return true;
        check_interrupt();
        if (deadline.passed()) return false;
    }
}

// Sequentially consistent: a waiter that wake() does not count among the sleepers finds another
// epoch when it goes to sleep.
void Signal::wake(std::uint32_t places) {
    epoch_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    futex(&epoch_, FUTEX_WAKE_BITSET_PRIVATE, INT_MAX, nullptr, places);
}

bool Signal::wait(std::uint32_t seen, Deadline deadline, std::uint32_t place) {
    while (epoch() == seen) {
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
        sleep_while(&epoch_, seen, next_check(deadline), place);
        sleepers_.fetch_sub(1, std::memory_order_relaxed);
        if (epoch() != seen) break;
        check_interrupt();
        if (deadline.passed()) return false;
    }
    return true;
}

#else

namespace {
// For systems without a futex: one mutex for all events, correct and fast enough.
std::mutex mutex;
std::condition_variable changed;
}  // namespace

void Event::set() {
    {
        std::lock_guard lock(mutex);
        state_.store(kSet, std::memory_order_release);
    }
    changed.notify_all();
}

bool Event::wait(Deadline deadline) {
    std::unique_lock lock(mutex);
    return wait_or_interrupt(changed, lock, deadline, [this] { return is_set(); });
}

void Signal::wake(std::uint32_t) {
    {
        std::lock_guard lock(mutex);
        epoch_.fetch_add(1, std::memory_order_release);
    }
    changed.notify_all();
}

bool Signal::wait(std::uint32_t seen, Deadline deadline, std::uint32_t) {
    std::unique_lock lock(mutex);
    return wait_or_interrupt(changed, lock, deadline, [&] { return epoch() != seen; });
}

#endif

// A thread that has slept cannot know whether others still sleep, so it takes the lock as kAwaited.
void ShortLock::wait() {
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
        state_.wait(kAwaited, std::memory_order_relaxed);
    }
}

}  // namespace hotcount
