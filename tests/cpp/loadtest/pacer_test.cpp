#include "load/pacer.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdint>

namespace hotcount::loadtest {
namespace {

TEST(Schedule, UniformTimesNeverDrift) {
    Schedule schedule(Arrival::uniform, 3, 1);
    for (std::int64_t index = 0; index < 1'000'000; ++index) {
        const std::int64_t at_ns = schedule.next_ns();
        ASSERT_NEAR(static_cast<double>(at_ns), static_cast<double>(index) * 1e9 / 3, 1.0);
    }
}

TEST(Schedule, PoissonGapsAreExponentialAndRepeatable) {
    Schedule schedule(Arrival::poisson, 1000, 4);
    Schedule again(Arrival::poisson, 1000, 4);
    std::int64_t previous = 0;
    double sum = 0;
    double squares = 0;
    constexpr int kGaps = 100'000;
    for (int i = 0; i < kGaps; ++i) {
        const std::int64_t at_ns = schedule.next_ns();
        ASSERT_EQ(at_ns, again.next_ns());
        const auto gap = static_cast<double>(at_ns - previous);
        ASSERT_GE(gap, 0);
        sum += gap;
        squares += gap * gap;
        previous = at_ns;
    }
    const double mean = sum / kGaps;
    const double deviation = std::sqrt(squares / kGaps - mean * mean);
    EXPECT_NEAR(mean, 1e6, 2e4);
    EXPECT_NEAR(deviation / mean, 1.0, 0.02);
}

TEST(Schedule, AClosedLoopHasNoTimes) {
    Schedule schedule(Arrival::closed, 0, 1);
    EXPECT_EQ(schedule.next_ns(), 0);
    EXPECT_EQ(schedule.next_ns(), 0);
}

TEST(SleepUntil, WakesAtTheTimeAndNotBefore) {
    sharpen_timers();
    const auto at = std::chrono::steady_clock::now() + std::chrono::milliseconds{5};
    sleep_until(at);
    const auto woke = std::chrono::steady_clock::now();
    EXPECT_GE(woke, at);
    EXPECT_LT(woke - at, std::chrono::seconds{1});
    sleep_until(at);  // Passed: returns at once.
    EXPECT_LT(std::chrono::steady_clock::now() - woke, std::chrono::seconds{1});
}

}  // namespace
}  // namespace hotcount::loadtest
