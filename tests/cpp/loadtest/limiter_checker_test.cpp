// The limiter's result on hits whose times are given: what is certain is found, what may have
// been right is not.
#include "checkers/store_checkers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace hotcount::loadtest {
namespace {

using Kind = LimiterHit::Kind;

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kMillisecond = 1'000'000;

LimiterRules rules(Windows windows, std::int64_t limit) {
    LimiterRules rules;
    rules.windows = windows;
    rules.limit = limit;
    rules.rate_limit = limit;
    rules.period_ns = kSecond;
    return rules;
}

/// `count` hits, one a microsecond, each answered within the next.
void add(std::vector<LimiterHit>& hits, Kind kind, std::int64_t from_ns, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
        hits.push_back({from_ns + i * 1000, from_ns + i * 1000 + 900, kind});
    }
}

AuditResult check(std::vector<LimiterHit> hits, const LimiterRules& how) {
    AuditResult result;
    check_limiter_hits(7, hits, how, result);
    return result;
}

class EveryWindows : public testing::TestWithParam<Windows> {};
INSTANTIATE_TEST_SUITE_P(, EveryWindows,
                         testing::Values(Windows::none, Windows::clock, Windows::weighted_clock,
                                         Windows::sliding, Windows::after_first));

TEST_P(EveryWindows, TheLimitAtOnceIsAllowedAndNoMore) {
    std::vector<LimiterHit> hits;
    add(hits, Kind::admitted, 100 * kMillisecond, 10);
    add(hits, Kind::denied, 200 * kMillisecond, 5);
    EXPECT_TRUE(check(hits, rules(GetParam(), 10)).passed());
    add(hits, Kind::admitted, 101 * kMillisecond, 3);
    const AuditResult result = check(hits, rules(GetParam(), 10));
    // The denials came at 200 ms: gcra had paid back one hit by then, of thirteen.
    EXPECT_EQ(result.over_admitted, 3U);
    EXPECT_EQ(result.wrong_refusals, 0U);
    EXPECT_FALSE(result.passed());
    EXPECT_THAT(result.examples, testing::Contains(testing::HasSubstr("item 7")));
}

TEST_P(EveryWindows, WhatMayNotHaveBeenAdmittedDoesNotCountAgainstTheLimiter) {
    std::vector<LimiterHit> hits;
    add(hits, Kind::admitted, 100 * kMillisecond, 10);
    add(hits, Kind::maybe, 101 * kMillisecond, 20);
    EXPECT_EQ(check(hits, rules(GetParam(), 10)).over_admitted, 0U);
    // But it may be why another was denied.
    std::vector<LimiterHit> few;
    add(few, Kind::admitted, 100 * kMillisecond, 4);
    add(few, Kind::maybe, 101 * kMillisecond, 6);
    add(few, Kind::denied, 102 * kMillisecond, 1);
    EXPECT_EQ(check(few, rules(GetParam(), 10)).wrong_refusals, 0U);
}

TEST_P(EveryWindows, ADenialWithRoomLeftIsWrong) {
    std::vector<LimiterHit> hits;
    add(hits, Kind::admitted, 100 * kMillisecond, 9);
    add(hits, Kind::denied, 110 * kMillisecond, 2);
    EXPECT_EQ(check(hits, rules(GetParam(), 10)).wrong_refusals, 2U);
    add(hits, Kind::admitted, 105 * kMillisecond, 1);
    EXPECT_EQ(check(hits, rules(GetParam(), 10)).wrong_refusals, 0U);
}

TEST_P(EveryWindows, WhatIsDeclaredBreaksNothing) {
    std::vector<LimiterHit> hits;
    add(hits, Kind::admitted, 100 * kMillisecond, 12);
    LimiterRules how = rules(GetParam(), 10);
    how.may_over_admit = true;
    const AuditResult result = check(hits, how);
    EXPECT_EQ(result.over_admitted, 2U);
    EXPECT_EQ(result.allowed_breaches, 2U);
    EXPECT_TRUE(result.passed());
}

TEST_P(EveryWindows, AHitThatTakesLongMayHaveBeenDecidedAtAnyTime) {
    std::vector<LimiterHit> hits;
    add(hits, Kind::admitted, 100 * kMillisecond, 10);
    // It may have been decided two windows later.
    hits.push_back({101 * kMillisecond, 3 * kSecond, Kind::admitted});
    EXPECT_EQ(check(hits, rules(GetParam(), 10)).over_admitted, 0U);
}

TEST_P(EveryWindows, AHitWithoutAnAnswerMayBeAdmittedAtAnyTimeAndCostsNoMemory) {
    LimiterRules how = rules(GetParam(), 10);
    how.clock_offset_ns = 1'700'000'000 * kSecond;
    std::vector<LimiterHit> hits;
    add(hits, Kind::admitted, 100 * kMillisecond, 4);
    for (int i = 0; i < 6; ++i) hits.push_back({100 * kMillisecond, INT64_MAX / 4, Kind::maybe});
    add(hits, Kind::denied, 200 * kMillisecond, 3);
    EXPECT_EQ(check(hits, how).wrong_refusals, 0U);
    // Later the six may be all that was admitted, which is too few: but of two windows together it is
    // not.
    add(hits, Kind::denied, 5100 * kMillisecond, 2);
    EXPECT_EQ(check(hits, how).wrong_refusals, GetParam() == Windows::weighted_clock ? 0U : 2U);
    for (int i = 0; i < 4; ++i) hits.push_back({kSecond, INT64_MAX / 4, Kind::maybe});
    EXPECT_EQ(check(hits, how).wrong_refusals, 0U);
}

TEST(CheckGcra, AdmitsTheRateOnTopOfTheBurst) {
    std::vector<LimiterHit> hits;
    add(hits, Kind::admitted, 0, 10);
    for (std::int64_t i = 1; i <= 30; ++i) add(hits, Kind::admitted, i * kSecond / 10 + 100'000, 1);
    EXPECT_TRUE(check(hits, rules(Windows::none, 10)).passed());
    // One more anywhere in the three seconds is one too many.
    add(hits, Kind::admitted, kSecond + kSecond / 20, 1);
    EXPECT_EQ(check(hits, rules(Windows::none, 10)).over_admitted, 1U);
}

TEST(CheckGcra, FindsABurstThatALongPauseDoesNotPayFor) {
    std::vector<LimiterHit> hits;
    add(hits, Kind::admitted, 0, 1);
    add(hits, Kind::admitted, 100 * kSecond, 14);
    EXPECT_EQ(check(hits, rules(Windows::none, 10)).over_admitted, 4U);
}

TEST(CheckGcra, ADenialAfterThePauseThatPaysIsWrong) {
    std::vector<LimiterHit> hits;
    add(hits, Kind::admitted, 0, 10);
    add(hits, Kind::denied, 50 * kMillisecond, 1);
    EXPECT_EQ(check(hits, rules(Windows::none, 10)).wrong_refusals, 0U);
    add(hits, Kind::denied, 120 * kMillisecond, 1);
    EXPECT_EQ(check(hits, rules(Windows::none, 10)).wrong_refusals, 1U);
}

TEST(CheckClockWindows, TwiceTheLimitAcrossAnEdgeIsAllowed) {
    std::vector<LimiterHit> hits;
    add(hits, Kind::admitted, kSecond - 10 * kMillisecond, 10);
    add(hits, Kind::admitted, kSecond + 10 * kMillisecond, 10);
    EXPECT_TRUE(check(hits, rules(Windows::clock, 10)).passed());
    // On a clock half a second ahead the edge is elsewhere, and both fall into one window.
    LimiterRules ahead = rules(Windows::clock, 10);
    ahead.clock_offset_ns = kSecond / 2;
    EXPECT_EQ(check(hits, ahead).over_admitted, 10U);
    // Unless that clock is not known well enough.
    ahead.clock_error_ns = kSecond;
    EXPECT_EQ(check(hits, ahead).over_admitted, 0U);
}

TEST(CheckWeightedWindows, ADenialMayBeForWhatTheWindowBeforeAdmitted) {
    std::vector<LimiterHit> hits;
    add(hits, Kind::admitted, kSecond - 10 * kMillisecond, 10);
    add(hits, Kind::denied, kSecond + 10 * kMillisecond, 1);
    EXPECT_TRUE(check(hits, rules(Windows::weighted_clock, 10)).passed());
    EXPECT_EQ(check(hits, rules(Windows::clock, 10)).wrong_refusals, 1U);
    // Two windows later nothing of it counts.
    add(hits, Kind::denied, 2 * kSecond + 10 * kMillisecond, 1);
    EXPECT_EQ(check(hits, rules(Windows::weighted_clock, 10)).wrong_refusals, 1U);
}

TEST(CheckLogs, NoPeriodHoldsMoreThanTheLimit) {
    std::vector<LimiterHit> hits;
    add(hits, Kind::admitted, kSecond - 10 * kMillisecond, 10);
    add(hits, Kind::admitted, 2 * kSecond, 10);
    EXPECT_TRUE(check(hits, rules(Windows::sliding, 10)).passed());
    // Across the edge, where windows of the clock allow it.
    add(hits, Kind::admitted, kSecond + 10 * kMillisecond, 4);
    EXPECT_EQ(check(hits, rules(Windows::sliding, 10)).over_admitted, 4U);
    EXPECT_EQ(check(hits, rules(Windows::clock, 10)).over_admitted, 0U);
}

TEST(CheckWindowsFromTheFirstHit, EachWindowHasItsLimit) {
    std::vector<LimiterHit> hits;
    for (std::int64_t window = 0; window < 5; ++window) {
        add(hits, Kind::admitted, window * (kSecond + 3 * kMillisecond), 10);
    }
    EXPECT_TRUE(check(hits, rules(Windows::after_first, 10)).passed());
    // One more in each of them.
    for (std::int64_t window = 0; window < 5; ++window) {
        add(hits, Kind::admitted, window * (kSecond + 3 * kMillisecond) + kMillisecond, 1);
    }
    EXPECT_EQ(check(hits, rules(Windows::after_first, 10)).over_admitted, 5U);
}

TEST(CheckWindowsFromTheFirstHit, APauseBeginsAnew) {
    std::vector<LimiterHit> hits;
    add(hits, Kind::admitted, 0, 1);
    add(hits, Kind::admitted, 50 * kSecond, 13);
    EXPECT_EQ(check(hits, rules(Windows::after_first, 10)).over_admitted, 3U);
}

TEST(CheckWindowsFromTheFirstHit, ADenialAfterTheWindowIsWrong) {
    std::vector<LimiterHit> hits;
    add(hits, Kind::admitted, 0, 10);
    add(hits, Kind::denied, 900 * kMillisecond, 1);
    EXPECT_EQ(check(hits, rules(Windows::after_first, 10)).wrong_refusals, 0U);
    add(hits, Kind::denied, kSecond + 100 * kMillisecond, 1);
    EXPECT_EQ(check(hits, rules(Windows::after_first, 10)).wrong_refusals, 1U);
}

}  // namespace
}  // namespace hotcount::loadtest
