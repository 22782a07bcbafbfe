// When each operation is due, and sleeping until then.
//
// Open loop: the schedule is fixed before the run and does not depend on how fast the system
// answers. Latency counts from the intended time, so a stall is charged to every operation that was
// due during it (no coordinated omission). There is no dispatcher thread: a worker takes the next
// slot and sleeps to its absolute time itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/random.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::loadtest {

enum class Arrival : std::uint8_t {
    closed,   ///< No schedule: a worker's next operation follows its last answer at once.
    uniform,  ///< Equal gaps.
    poisson,  ///< Exponential gaps: independent callers.
    trace,    ///< The times of a recorded stream.
};
std::string_view to_string(Arrival arrival);

/// How the rate of independent callers changes with time: factors of it, one after another from the
/// start of the run on, and then from the first again.
struct RateProfile {
    struct Step {
        double factor;
        Duration lasts;
    };
    /// Empty: the rate is constant. Otherwise at least one factor is above 0.
    std::vector<Step> steps{};
    std::string text{};  ///< As it was given.

    bool constant() const { return steps.empty(); }
    /// The time in which the constant rate makes as many operations as this profile in `time`.
    Duration equivalent(Duration time) const;
};

class Trace;

/// The intended times of the operations, in order. Not thread-safe.
class Schedule {
  public:
    /// `rate_per_s` must be positive; with Arrival::closed every time is 0. A profile is for
    /// Arrival::poisson.
    Schedule(Arrival arrival, double rate_per_s, std::uint64_t seed, RateProfile profile = {});

    /// With Arrival::trace. After its last operation all times are later than any run.
    explicit Schedule(std::shared_ptr<const Trace> trace);

    /// Nanoseconds from the start of the run.
    std::int64_t next_ns();

  private:
    void advance(double gaps);

    Arrival arrival_;
    double gap_ns_{0};
    Random random_;
    std::uint64_t index_{0};
    double at_ns_{0};
    RateProfile profile_{};
    std::shared_ptr<const Trace> trace_{};
    std::size_t step_{0};     // Index of the profile's step at at_ns_.
    double step_ends_ns_{0};  // The end of that step.
};

/// Makes the calling thread's sleeps as exact as Linux allows (a timer slack of 1 ns, not 50 us).
void sharpen_timers();

/// Sleeps to an absolute time of the monotonic clock; returns at once if it has passed.
void sleep_until(SteadyTime time);

}  // namespace hotcount::loadtest
