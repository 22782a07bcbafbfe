// A call of many elements sends them a portion at a time: single calls made meanwhile stand behind
// one portion, and whatever its deadline leaves unsent was never begun.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <hotcount/clock.hpp>

namespace hotcount {

/// Until when such a call begins to send some. Those that were sent are answered at most 200 ms
/// later, as a single call may be; then each of them is told its outcome. So that the call returns
/// by 100 ms after its deadline, it stops 150 ms and 0.5 us for each element earlier, and a third
/// of its time at most. A call of one element has all of its time.
inline Deadline time_to_send(Deadline deadline, std::size_t elements) {
    constexpr Duration kLateAnswer = std::chrono::milliseconds{150};
    constexpr Duration kToTell = std::chrono::nanoseconds{500};
    constexpr int kMostOfTime = 3;
    if (elements < 2) return deadline;
    const Duration needed = kLateAnswer + static_cast<Duration::rep>(elements) * kToTell;
    return Deadline::at(deadline.time() - std::min(needed, deadline.remaining() / kMostOfTime));
}

/// How large its portions are: an eighth of the largest (but not below 16) while other calls come,
/// and for a second after the last of them. A larger part: they wait longer. A smaller part: more
/// round trips or transactions.
class PortionSize {
  public:
    explicit PortionSize(std::size_t largest) : largest_(std::max<std::size_t>(1, largest)) {}

    /// Whether a call of so many elements is sent in portions; else it is one of the others.
    bool is_large(std::size_t elements) const { return elements > beside_others(); }
    /// A call that is not large has come.
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
