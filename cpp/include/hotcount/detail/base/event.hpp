// Event (set once), Signal (happens repeatedly) and ShortLock (a mutex). Waits for an Event or a
// Signal have a deadline.
//
// Thread-safe. Event and Signal are futex words: std::atomic::wait has no timed form, and a
// condition variable costs each waiter a mutex. A leader of group commit wakes dozens of waiters
// per transaction.
#pragma once

#include <atomic>
#include <cstdint>
#include <hotcount/clock.hpp>

namespace hotcount {

/// set() happens-before the return of the wait() that sees it. Any number of waiters.
class Event {
  public:
    void set();
    bool is_set() const { return state_.load(std::memory_order_acquire) == kSet; }
    /// True once set, false when the deadline passed first or the thread was interrupted.
    bool wait(Deadline deadline);
    /// Back to unset; only while no thread waits.
    void clear() { state_.store(kUnset, std::memory_order_release); }

  private:
    static constexpr std::uint32_t kUnset = 0;
    static constexpr std::uint32_t kWaiting = 1;  // A thread sleeps: set() must wake it.
    static constexpr std::uint32_t kSet = 2;
    std::atomic<std::uint32_t> state_{kUnset};
};

/// Happens again and again, to many waiters: one system call wakes them all.
///
/// A waiter reads epoch() first, then checks whether what it waits for has happened, and then waits
/// for another epoch.
class Signal {
  public:
    std::uint32_t epoch() const { return epoch_.load(std::memory_order_acquire); }
    /// A waiter may have one of 32 places, so that wake() reaches few others; higher numbers share.
    static constexpr std::uint32_t kAll = ~std::uint32_t{0};
    static constexpr std::uint32_t place(unsigned number) { return 1U << (number % 32); }
    /// True once the epoch has changed; false at the deadline, or if the thread is interrupted. The
    /// caller must expect to be woken without a reason.
    bool wait(std::uint32_t seen, Deadline deadline, std::uint32_t place = kAll);
    /// Wakes all threads that wait in one of these places.
    void wake(std::uint32_t places = kAll);

  private:
    std::atomic<std::uint32_t> epoch_{0};
    std::atomic<std::uint32_t> sleepers_{0};
};

/// A mutex for sections of a few instructions: 4 bytes, and inlined if it is free.
///
/// std::mutex costs two calls into the C library, which for a section of 20 ns is half of its time.
/// Waiters sleep in the kernel, and are not served in order. Not recursive. BasicLockable, for
/// std::lock_guard and std::unique_lock; a condition variable takes std::mutex.
class ShortLock {
  public:
    void lock() {
        int found = kFree;
        if (!state_.compare_exchange_strong(found, kHeld, std::memory_order_acquire)) [[unlikely]]
            wait();
    }
    void unlock() {
        if (state_.exchange(kFree, std::memory_order_release) == kAwaited) [[unlikely]]
            state_.notify_one();
    }

  private:
    enum State : int { kFree, kHeld, kAwaited };

    void wait();

    std::atomic<int> state_{kFree};
};

}  // namespace hotcount
