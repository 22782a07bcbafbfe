#include "votes/strategies/call_times.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace hotcount {
namespace {

using namespace std::chrono_literals;

TEST(CallTimesTest, NoCallsHaveNoTimes) {
    const CallTimes times;
    EXPECT_EQ(times.at(0.5), Duration{0});
    EXPECT_EQ(times.good() + times.failed(), 0U);
}

TEST(CallTimesTest, AShareOfTheCallsTookNoLongerThanItsTimeAndNotMuchLess) {
    for (const Duration took : {Duration{1us}, Duration{7us}, Duration{999us}, Duration{20ms},
                                Duration{3s}, Duration{600s}}) {
        CallTimes times;
        times.add(took, 1, 0);
        EXPECT_GE(times.at(0.5), took) << took.count();
        EXPECT_LE(times.at(0.5).count(), std::llround(1.26 * static_cast<double>(took.count())))
            << took.count();
    }
}

TEST(CallTimesTest, SharesAreInOrderAndVotesAreCounted) {
    CallTimes times;
    for (int i = 0; i < 98; ++i) times.add(1ms, 2, 0);
    times.add(50ms, 0, 1);
    times.add(2s, 1, 0);
    EXPECT_LT(times.at(0.5), 2ms);
    EXPECT_GE(times.at(0.99), 50ms);
    EXPECT_LT(times.at(0.99), 1s);
    EXPECT_GE(times.at(1.0), 2s);
    EXPECT_EQ(times.good(), 197U);
    EXPECT_EQ(times.failed(), 1U);
    times.add(-1ns, 1, 0);
    times.add(std::chrono::hours{48}, 1, 0);
    EXPECT_GT(times.at(1.0), std::chrono::minutes{10}) << "what is longer is in the last bucket";
}

}  // namespace
}  // namespace hotcount
