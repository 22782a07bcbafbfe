#include "pacer.hpp"

#include <sys/prctl.h>

#include <cerrno>
#include <cmath>
#include <ctime>

#include "draws.hpp"

namespace hotcount::loadtest {

std::string_view to_string(Arrival arrival) {
    switch (arrival) {
        case Arrival::closed:
            return "closed";
        case Arrival::uniform:
            return "uniform";
        case Arrival::poisson:
            return "poisson";
    }
    return "?";
}

Schedule::Schedule(Arrival arrival, double rate_per_s, std::uint64_t seed)
    : arrival_(arrival),
      gap_ns_(arrival == Arrival::closed ? 0 : 1e9 / rate_per_s),
      // Apart from the workload's generator, so that the traffic is the same at every rate.
      random_(mix(seed, 1)) {}

std::int64_t Schedule::next_ns() {
    switch (arrival_) {
        case Arrival::closed:
            break;
        // From the index, not by adding gaps: rounding does not pile up.
        case Arrival::uniform:
            at_ns_ = gap_ns_ * static_cast<double>(index_++);
            break;
        case Arrival::poisson:
            at_ns_ -= gap_ns_ * std::log1p(-random_.unit());
            break;
    }
    return static_cast<std::int64_t>(at_ns_);
}

void sharpen_timers() { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

void sleep_until(SteadyTime time) {
    // steady_clock is CLOCK_MONOTONIC; std::this_thread::sleep_until would read the clock first
    // and then sleep for the difference, which a preemption in between makes too long.
    const std::int64_t at_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
    timespec at{};
    at.tv_sec = static_cast<time_t>(at_ns / 1'000'000'000);
    at.tv_nsec = static_cast<long>(at_ns % 1'000'000'000);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
    }
}

}  // namespace hotcount::loadtest
