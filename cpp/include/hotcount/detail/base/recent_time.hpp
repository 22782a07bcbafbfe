// The time for those who ask again and again, for half of what a clock costs or less.
#pragma once

#include <hotcount/clock.hpp>

namespace hotcount {

/// What std::chrono::steady_clock read in this thread less than a microsecond ago, or reads now. It
/// never goes backwards in a thread; between threads it may by that microsecond. Thread-safe.
SteadyTime recent_steady_time();

}  // namespace hotcount
