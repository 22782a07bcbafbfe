#include <hotcount/detail/base/short_lock.hpp>

namespace hotcount {

// Who has slept does not know whether others sleep: it takes the lock as one that is awaited.
void ShortLock::wait() {
    while (state_.exchange(kAwaited, std::memory_order_acquire) != kFree) {
        state_.wait(kAwaited, std::memory_order_relaxed);
    }
}

}  // namespace hotcount
