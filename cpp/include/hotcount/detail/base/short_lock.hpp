// A mutex for sections of a few instructions: 4 bytes, and inlined where nobody else has it.
//
// std::mutex costs two calls into the C library, which for a section of 20 ns is half of its time.
// Waiters sleep in the kernel, and are not served in order. Not recursive. BasicLockable, for
// std::lock_guard and std::unique_lock; a condition variable takes std::mutex.
#pragma once

#include <atomic>

namespace hotcount {

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
