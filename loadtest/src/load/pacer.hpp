// When each operation is due, and sleeping until then.
//
// Open loop: the schedule is fixed before the run and does not depend on how fast the system
// answers. Latency counts from the intended time, so a stall is charged to every operation that was
// due during it (no coordinated omission). There is no dispatcher thread: a worker takes the next
// slot and sleeps to its absolute time itself.
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/random.hpp>
#include <string_view>

namespace hotcount::loadtest {

enum class Arrival : std::uint8_t {
    closed,   ///< No schedule: a worker's next operation follows its last answer at once.
    uniform,  ///< Equal gaps.
    poisson,  ///< Exponential gaps: independent callers.
};
std::string_view to_string(Arrival arrival);

/// The intended times of the operations, in order. Not thread-safe.
class Schedule {
  public:
    /// `rate_per_s` must be positive; with Arrival::closed every time is 0.
    Schedule(Arrival arrival, double rate_per_s, std::uint64_t seed);

    /// Nanoseconds from the start of the run.
    std::int64_t next_ns();

  private:
    Arrival arrival_;
    double gap_ns_;
    Random random_;
    std::uint64_t index_{0};
    double at_ns_{0};
};

/// Makes the calling thread's sleeps as exact as Linux allows (a timer slack of 1 ns, not 50 us).
void sharpen_timers();

/// Sleeps to an absolute time of the monotonic clock; returns at once if it has passed.
void sleep_until(SteadyTime time);

}  // namespace hotcount::loadtest
