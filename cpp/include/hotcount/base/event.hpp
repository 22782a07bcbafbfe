// A one-shot event a thread can wait for with a deadline.
//
// std::atomic::wait has no timed form and a condition variable costs a mutex per waiter; a
// group-commit leader wakes dozens of these per transaction, so on Linux this is one futex word.
#pragma once

#include <atomic>
#include <cstdint>
#include <hotcount/base/clock.hpp>

namespace hotcount {

/// set() happens-before the return of the wait() that sees it. Any number of waiters.
class Event {
  public:
    void set();
    bool is_set() const { return state_.load(std::memory_order_acquire) == kSet; }
    /// True once set, false when the deadline passed first or the thread was interrupted.
    bool wait(Deadline deadline);
    /// Back to unset; only while nobody waits.
    void clear() { state_.store(kUnset, std::memory_order_release); }

  private:
    static constexpr std::uint32_t kUnset = 0;
    static constexpr std::uint32_t kWaiting = 1;  // Somebody sleeps: set() must wake.
    static constexpr std::uint32_t kSet = 2;
    std::atomic<std::uint32_t> state_{kUnset};
};

}  // namespace hotcount
