#include "load/pacer.hpp"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
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

/// 2 s with the rate, 1 s with five times as many, 1 s with none.
RateProfile uneven() {
    using std::chrono::seconds;
    return {{{1, seconds{2}}, {5, seconds{1}}, {0, seconds{1}}}, "uneven"};
}

TEST(RateProfile, StepsHaveTheirShareOfTheOperations) {
    Schedule schedule(Arrival::poisson, 10'000, 3, uneven());
    std::array<double, 8> counts{};  // By second, over two rounds of the profile.
    std::int64_t previous = 0;
    for (std::int64_t at_ns = schedule.next_ns(); at_ns < 8'000'000'000;
         at_ns = schedule.next_ns()) {
        ASSERT_GE(at_ns, previous);
        previous = at_ns;
        ++counts[static_cast<std::size_t>(at_ns / 1'000'000'000)];
    }
    for (const std::size_t second : {0U, 1U, 4U, 5U}) EXPECT_NEAR(counts[second], 10'000, 600);
    for (const std::size_t second : {2U, 6U}) EXPECT_NEAR(counts[second], 50'000, 1500);
    for (const std::size_t second : {3U, 7U}) EXPECT_EQ(counts[second], 0);
}

TEST(RateProfile, KnowsHowManyOperationsATimeHas) {
    using std::chrono::milliseconds;
    EXPECT_EQ(uneven().equivalent(milliseconds{2000}), milliseconds{2000});
    EXPECT_EQ(uneven().equivalent(milliseconds{2500}), milliseconds{4500});
    EXPECT_EQ(uneven().equivalent(milliseconds{4000}), milliseconds{7000});
    EXPECT_EQ(uneven().equivalent(milliseconds{9000}), milliseconds{15'000});
    EXPECT_EQ(RateProfile{}.equivalent(milliseconds{9000}), milliseconds{9000});
}

}  // namespace
}  // namespace hotcount::loadtest
