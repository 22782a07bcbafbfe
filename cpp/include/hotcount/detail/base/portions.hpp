// A call of many elements sends them in portions. A single call made meanwhile then waits for one
// portion only, and the elements that are unsent at the deadline were never begun.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <hotcount/clock.hpp>

namespace hotcount {

/// The deadline for sending portions. A portion is answered at most 200 ms after this time, as a
/// single call may be, and then each element gets its outcome. So that the call returns by 100 ms
/// after its deadline, sending stops earlier by 150 ms and 0.5 us for each element, but at most by
/// a third of the remaining time. A call of one element may send until its deadline.
inline Deadline time_to_send(Deadline deadline, std::size_t elements) {
    constexpr Duration kLateAnswer = std::chrono::milliseconds{150};
    constexpr Duration kToTell = std::chrono::nanoseconds{500};
    constexpr int kThirds = 3;
    if (elements < 2) return deadline;
    const Duration needed = kLateAnswer + static_cast<Duration::rep>(elements) * kToTell;
    return Deadline::at(deadline.time() - std::min(needed, deadline.remaining() / kThirds));
}

/// The size of the portions: `largest`, or for 1 s after each call that is not large an eighth of
/// it, but not below 16. A larger fraction would make the other calls wait longer; a smaller one
/// would cost more round trips or transactions.
class PortionSize {
  public:
    explicit PortionSize(std::size_t largest) : largest_(std::max<std::size_t>(1, largest)) {}

    /// Whether a call of this many elements is large and is sent in portions.
    bool is_large(std::size_t elements) const { return elements > beside_others(); }
    /// Records a call that is not large.
    void note_other() { last_other_.store(now(), std::memory_order_relaxed); }
    std::size_t next(std::size_t left) const {
        constexpr Duration kOthersStay = std::chrono::seconds{1};
        const auto since = Duration{now() - last_other_.load(std::memory_order_relaxed)};
        return std::min(left, since < kOthersStay ? beside_others() : largest_);
    }

  private:
    static SteadyTime::rep now() {
        return std::chrono::steady_clock::now().time_since_epoch().count();
    }
    std::size_t beside_others() const {
        constexpr std::size_t kLeast = 16;
        return std::max(largest_ / 8, std::min(largest_, kLeast));
    }

    const std::size_t largest_;
    std::atomic<SteadyTime::rep> last_other_{0};
};

}  // namespace hotcount
