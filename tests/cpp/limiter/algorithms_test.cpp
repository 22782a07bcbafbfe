#include <hotcount/detail/base/random.hpp>
#include <hotcount/detail/limiter/algorithms.hpp>

#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using testing::failed_with;

constexpr std::int64_t kSecond = 1'000'000;
constexpr std::int64_t kDay = 86'400 * kSecond;
constexpr std::int64_t kNow = 1'800'000'000 * kSecond + 123'457;

using StepFunction = Step (*)(const Plan&, std::optional<LimitState>, std::int64_t, std::int64_t,
                              bool);

// One key: state carried from hit to hit.
struct Key {
    Plan plan;
    StepFunction step;
    std::optional<LimitState> state{};

    Verdict hit(std::int64_t now, std::int64_t cost = 1) {
        const Step next = step(plan, state, now, cost, true);
        if (next.state) state = next.state;
        return next.verdict;
    }
};

Key gcra(const char* rate) { return {*plan_gcra(*Rate::parse(rate), false), step_gcra}; }
Key window(const char* rate, Align align) {
    return {*plan_window(*Rate::parse(rate), align, false), step_fixed_window};
}

TEST(Gcra, TheLongRunRateIsTheConfiguredOneAtOneADay) {
    Key key = gcra("1/day");
    std::int64_t admitted = 0;
    // An hour and a bit, so that hits never fall on the refill's own grid.
    for (std::int64_t now = kNow; now < kNow + 2000 * kDay; now += 3'601 * kSecond + 7) {
        admitted += key.hit(now).allowed ? 1 : 0;
    }
    // Asking once an hour loses at most an hour of each day; what it may never do is drift.
    EXPECT_LE(admitted, 2001);
    EXPECT_GE(admitted, 2000 * 24 / 25);
    // Asking at the moment that the decision names loses nothing.
    Key exact = gcra("1/day");
    std::int64_t now = kNow;
    for (admitted = 0; now < kNow + 2000 * kDay; ++admitted) {
        ASSERT_TRUE(exact.hit(now).allowed);
        now += *exact.hit(now).retry_after_us;
    }
    EXPECT_EQ(admitted, 2000);
}

TEST(Gcra, TheLongRunRateIsTheConfiguredOneAtAMillionASecond) {
    Key key = gcra("1000000/s burst 1000");
    std::int64_t admitted = 0;
    for (std::int64_t now = kNow; now < kNow + 2 * kSecond; now += 1) {
        // Two asked for each microsecond: one fits.
        admitted += (key.hit(now).allowed ? 1 : 0) + (key.hit(now).allowed ? 1 : 0);
    }
    EXPECT_NEAR(static_cast<double>(admitted), 2e6, 2e6 * 0.001);
    EXPECT_LE(admitted, 2'000'000 + 1000);
}

TEST(Gcra, ARemainderIsNeverLost) {
    // 3 a second: a third of a second is no whole number of microseconds.
    for (const char* rate :
         {"3/s burst 1", "7/s burst 1", "999983/s burst 2", "11/minute burst 1"}) {
        Key key = gcra(rate);
        const double per_us =
            static_cast<double>(key.plan.refill) / static_cast<double>(key.plan.token);
        const auto span = static_cast<std::int64_t>(100'000 / per_us);
        std::int64_t admitted = 0;
        std::int64_t now = kNow;
        while (now < kNow + span) {
            const Verdict verdict = key.hit(now);
            admitted += verdict.allowed ? 1 : 0;
            if (!verdict.allowed) now += *verdict.retry_after_us;
        }
        EXPECT_NEAR(static_cast<double>(admitted), 1e5, 1e5 * 0.001) << rate;
    }
}

TEST(Gcra, NoIntervalAdmitsMoreThanItsBurstAndItsRate) {
    Random random{7};
    Key key = gcra("50/s burst 5");
    std::vector<std::int64_t> times;
    std::int64_t now = kNow;
    for (int i = 0; i < 20'000; ++i) {
        now += static_cast<std::int64_t>(random.below(30'000));
        if (key.hit(now).allowed) times.push_back(now);
    }
    // admitted in [times[i], times[j]] = j - i + 1 <= 5 + 50 x t, in whole numbers
    for (std::size_t i = 0; i < times.size(); ++i) {
        for (std::size_t j = i; j < std::min(times.size(), i + 200); ++j) {
            const auto count = static_cast<std::int64_t>(j - i + 1);
            ASSERT_LE((count - 5) * kSecond, 50 * (times[j] - times[i]));
        }
    }
}

TEST(Gcra, RetryAfterIsTheFirstMomentThatIsAdmitted) {
    Random random{11};
    for (const char* rate : {"3/s", "7/minute burst 3", "1/day", "1000000/s", "999983/hour"}) {
        Key key = gcra(rate);
        std::int64_t now = kNow;
        for (int i = 0; i < 2000; ++i) {
            const auto most = static_cast<std::uint64_t>(key.plan.limit);
            const auto cost = 1 + static_cast<std::int64_t>(random.below(most));
            const Verdict verdict = key.hit(now, cost);
            if (verdict.allowed) continue;
            const std::int64_t wait = *verdict.retry_after_us;
            ASSERT_GT(wait, 0);
            ASSERT_FALSE(
                step_gcra(key.plan, key.state, now + wait - 1, cost, false).verdict.allowed);
            now += wait;
            ASSERT_TRUE(key.hit(now, cost).allowed);
        }
    }
}

TEST(FixedWindow, TheLongRunRateIsTheConfiguredOne) {
    Key million = window("1000000/s", Align::clock);
    std::int64_t admitted = 0;
    const std::int64_t start = kNow - kNow % kSecond;
    for (std::int64_t now = start; now < start + 3 * kSecond; now += 100) {
        for (int i = 0; i < 3; ++i) admitted += million.hit(now, 100).allowed ? 100 : 0;
    }
    EXPECT_EQ(admitted, 3'000'000);
    Key daily = window("1/day", Align::clock);
    admitted = 0;
    const std::int64_t midnight = kNow - kNow % kDay;
    for (std::int64_t now = midnight; now < midnight + 1000 * kDay; now += 3'599 * kSecond) {
        admitted += daily.hit(now).allowed ? 1 : 0;
    }
    EXPECT_EQ(admitted, 1000);
}

TEST(FixedWindow, ClockWindowsBeginAtMultiplesOfThePeriod) {
    Key key = window("2/minute", Align::clock);
    const std::int64_t minute = 60 * kSecond;
    const std::int64_t edge = kNow - kNow % minute + minute;
    EXPECT_EQ(key.hit(edge - 5, 2).reset_after_us, 5);
    EXPECT_EQ(key.hit(edge - 1).retry_after_us, 1);
    EXPECT_TRUE(key.hit(edge, 2).allowed);
}

TEST(FixedWindow, FirstWindowsBeginWithTheFirstHit) {
    Key key = window("2/minute", Align::first);
    EXPECT_EQ(key.hit(kNow).reset_after_us, 60 * kSecond);
    EXPECT_TRUE(key.hit(kNow + 59 * kSecond).allowed);
    EXPECT_EQ(key.hit(kNow + 59 * kSecond).retry_after_us, kSecond);
    EXPECT_EQ(key.hit(kNow + 60 * kSecond).remaining, 1);
}

TEST(Algorithms, AClockThatGoesBackwardsStandsStill) {
    for (Key key : {gcra("2/minute"), window("2/minute", Align::first)}) {
        EXPECT_TRUE(key.hit(kNow, 2).allowed);
        const Verdict verdict = key.hit(kNow - kSecond);
        EXPECT_FALSE(verdict.allowed);
        EXPECT_GT(*verdict.retry_after_us, kSecond);
    }
}

TEST(Algorithms, WhatIsDeniedCostsNothing) {
    for (Key key : {gcra("10/minute"), window("10/minute", Align::first)}) {
        EXPECT_TRUE(key.hit(kNow, 7).allowed);
        const auto before = key.state;
        EXPECT_FALSE(key.hit(kNow, 4).allowed);
        EXPECT_EQ(key.hit(kNow, 11).retry_after_us, std::nullopt);
        EXPECT_EQ(key.hit(kNow, INT64_MAX).retry_after_us, std::nullopt);
        EXPECT_EQ(key.state->b, before->b);
        EXPECT_TRUE(key.hit(kNow, 3).allowed);
    }
}

TEST(Algorithms, ChargingDeniedHitsEndsAtTwiceTheLimit) {
    const Rate rate = *Rate::parse("10/minute");
    for (Key key : {Key{*plan_gcra(rate, true), step_gcra},
                    Key{*plan_window(rate, Align::first, true), step_fixed_window}}) {
        for (int i = 0; i < 100; ++i) key.hit(kNow);
        EXPECT_LE(key.hit(kNow).reset_after_us, 120 * kSecond);
        EXPECT_EQ(key.hit(kNow, 11).retry_after_us, std::nullopt);
        EXPECT_TRUE(key.hit(kNow + 120 * kSecond, 10).allowed);
    }
}

TEST(Algorithms, ARateBeyondExactArithmeticIsRefused) {
    EXPECT_TRUE(
        failed_with(plan_gcra({999'999'999'989, std::chrono::hours{24}, 999'999'999'989}, false),
                    ErrorCode::config, "999999999989/day"));
    EXPECT_TRUE(failed_with(plan_window({5, std::chrono::seconds{1}, 9}, Align::clock, false),
                            ErrorCode::config, "burst"));
    EXPECT_TRUE(plan_gcra({1'000'000, std::chrono::hours{24}, 1'000'000}, false).ok());
}

}  // namespace
}  // namespace hotcount
