// How far another machine's monotonic clock is ahead of this one's, from pings and their answers.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

namespace hotcount::loadtest {

/// The other clock less this one. It is right to within `error_ns`, whatever the way there and back
/// took of the round trip.
struct ClockOffset {
    std::int64_t ns{0};
    std::int64_t error_ns{0};
};

/// Keeps the answer of the shortest round trip.
class ClockProbe {
  public:
    /// Sent and answered on this clock, and the other clock in between.
    void add(std::int64_t sent_ns, std::int64_t there_ns, std::int64_t answered_ns) {
        const std::int64_t half = (answered_ns - sent_ns) / 2;
        // Rounded up: half of an odd number of nanoseconds.
        const ClockOffset offset{there_ns - sent_ns - half, half + 1};
        if (!best_ || offset.error_ns < best_->error_ns) best_ = offset;
    }
    const std::optional<ClockOffset>& best() const { return best_; }

  private:
    std::optional<ClockOffset> best_{};
};

/// For all that happened between two measurements: their middle, with an error that covers both, as
/// clocks may run at different speeds.
inline ClockOffset between(const ClockOffset& before, const ClockOffset& after) {
    const std::int64_t least = std::min(before.ns - before.error_ns, after.ns - after.error_ns);
    const std::int64_t most = std::max(before.ns + before.error_ns, after.ns + after.error_ns);
    const std::int64_t middle = least + (most - least) / 2;
    return {middle, most - middle};
}

}  // namespace hotcount::loadtest
