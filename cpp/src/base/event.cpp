#include <hotcount/base/event.hpp>
#include <hotcount/base/interrupt.hpp>

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
           const timespec* timeout) {
    return syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(word), operation, value, timeout,
                   nullptr, FUTEX_BITSET_MATCH_ANY);
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
        // FUTEX_WAIT_BITSET takes an absolute time on CLOCK_MONOTONIC: steady_clock on Linux.
        const auto since_epoch = next_check(deadline).time_since_epoch();
        const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_epoch);
        const timespec until{static_cast<std::time_t>(seconds.count()),
                             static_cast<long>((since_epoch - seconds).count())};
        futex(&state_, FUTEX_WAIT_BITSET_PRIVATE, kWaiting, &until);
        if (is_set()) return true;
        check_interrupt();
        if (deadline.passed()) return false;
    }
}

#else

namespace {
// One mutex for all events: correct everywhere, fast enough where this is not the main platform.
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

#endif

}  // namespace hotcount
