#include <algorithm>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/interrupt.hpp>

namespace hotcount {
namespace {

class SystemClock final : public Clock {
  public:
    SteadyTime steady_now() const override { return std::chrono::steady_clock::now(); }
    WallTime wall_now() const override { return std::chrono::system_clock::now(); }
};

}  // namespace

const std::shared_ptr<const Clock>& system_clock() {
    static const std::shared_ptr<const Clock> clock = std::make_shared<SystemClock>();
    return clock;
}

SteadyTime ManualClock::steady_now() const {
    std::lock_guard lock(mutex_);
    return SteadyTime{elapsed_};
}

WallTime ManualClock::wall_now() const {
    std::lock_guard lock(mutex_);
    return WallTime{std::chrono::duration_cast<WallTime::duration>(elapsed_)};
}

void ManualClock::advance(Duration by) {
    std::lock_guard lock(mutex_);
    elapsed_ += by;
}

Deadline Deadline::after(Duration duration) {
    const SteadyTime now = std::chrono::steady_clock::now();
    // A caller's "a hundred years" must not wrap around into the past.
    if (duration > SteadyTime::max() - now) return Deadline{SteadyTime::max()};
    return Deadline{now + duration};
}

bool Deadline::passed() const { return remaining() == Duration{0}; }

Duration Deadline::remaining() const {
    // A call without a deadline, such as a COMMIT, is not interrupted either.
    if (interrupted() && time_ != SteadyTime::max()) return Duration{0};
    return std::max(Duration{0}, time_ - std::chrono::steady_clock::now());
}

}  // namespace hotcount
