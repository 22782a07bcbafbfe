#include <gtest/gtest.h>
#include <hotcount/detail/base/random.hpp>
#include <hotcount/limiter.hpp>
#include <map>
#include <random>

#include "limiter/algorithm.hpp"
#include "limiter/backends.hpp"
#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using testing::failed_with;

constexpr std::int64_t kSecond = 1'000'000;
constexpr std::int64_t kDay = 86'400 * kSecond;
constexpr std::int64_t kNow = 1'800'000'000 * kSecond + 123'457;

// One key outside of any store.
class Key {
  public:
    explicit Key(const LimiterOptions& options)
        : key_(std::move(*find_algorithm(options.algorithm).simulate(options))) {}

    Outcome hit(std::int64_t now, std::int64_t cost = 1) { return key_->hit(now, cost, true); }
    Outcome look(std::int64_t now, std::int64_t cost) { return key_->hit(now, cost, false); }

  private:
    std::unique_ptr<SimulatedKey> key_;
};

LimiterOptions options_of(Algorithm algorithm, const Rate& rate, bool charge_denied = false) {
    LimiterOptions options;
    options.rates = {rate};
    options.algorithm = algorithm;
    options.charge_denied = charge_denied;
    return options;
}
Key gcra(const char* rate, bool charge_denied = false) {
    return Key{options_of(Algorithm::gcra, *Rate::parse(rate), charge_denied)};
}
Key window(const char* rate, Align align, bool charge_denied = false) {
    LimiterOptions options = options_of(Algorithm::fixed_window, *Rate::parse(rate), charge_denied);
    options.align = align;
    return Key{options};
}
Key sliding_window(const char* rate, bool charge_denied = false) {
    return Key{options_of(Algorithm::sliding_window, *Rate::parse(rate), charge_denied)};
}
Key sliding_log(const char* rate) {
    return Key{options_of(Algorithm::sliding_log, *Rate::parse(rate))};
}
// One of each kind of arithmetic.
std::vector<Key> all_kinds(const char* rate, bool charge_denied = false) {
    std::vector<Key> keys;
    keys.push_back(gcra(rate, charge_denied));
    keys.push_back(window(rate, Align::first, charge_denied));
    keys.push_back(sliding_window(rate, charge_denied));
    if (!charge_denied) keys.push_back(sliding_log(rate));
    return keys;
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
        const Rate parsed = *Rate::parse(rate);
        const double per_us =
            static_cast<double>(parsed.limit) / static_cast<double>(parsed.period.count());
        const auto span = static_cast<std::int64_t>(100'000 / per_us);
        std::int64_t admitted = 0;
        std::int64_t now = kNow;
        while (now < kNow + span) {
            const Outcome outcome = key.hit(now);
            admitted += outcome.allowed ? 1 : 0;
            if (!outcome.allowed) now += *outcome.retry_after_us;
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

TEST(Gcra, TheBucketsDecideEachHitAsItDoes) {
    Random random{13};
    const Rate rate = *Rate::parse("7/minute burst 5");
    Key gcra{options_of(Algorithm::gcra, rate, true)};
    Key tokens{options_of(Algorithm::token_bucket, rate, true)};
    Key water{options_of(Algorithm::leaky_bucket, rate, true)};
    std::int64_t now = kNow;
    for (int i = 0; i < 5000; ++i) {
        now += static_cast<std::int64_t>(random.below(20 * kSecond));
        const auto cost = 1 + static_cast<std::int64_t>(random.below(6));
        const Outcome outcome = gcra.hit(now, cost);
        for (const Outcome& other : {tokens.hit(now, cost), water.hit(now, cost)}) {
            ASSERT_EQ(other.allowed, outcome.allowed);
            ASSERT_EQ(other.remaining, outcome.remaining);
            ASSERT_EQ(other.retry_after_us, outcome.retry_after_us);
            ASSERT_EQ(other.reset_after_us, outcome.reset_after_us);
        }
    }
}

TEST(Algorithms, RetryAfterIsTheFirstMomentThatIsAdmitted) {
    Random random{11};
    for (const char* rate : {"3/s", "7/minute", "1/day", "99999/s", "9973/hour"}) {
        for (Key& key : all_kinds(rate)) {
            std::int64_t now = kNow;
            for (int i = 0; i < 1000; ++i) {
                const auto most = static_cast<std::uint64_t>(Rate::parse(rate)->limit);
                const auto cost = 1 + static_cast<std::int64_t>(random.below(most));
                const Outcome outcome = key.hit(now, cost);
                if (outcome.allowed) continue;
                const std::int64_t wait = *outcome.retry_after_us;
                ASSERT_GT(wait, 0);
                ASSERT_FALSE(key.look(now + wait - 1, cost).allowed);
                now += wait;
                ASSERT_TRUE(key.hit(now, cost).allowed);
            }
        }
    }
}

// The most that lies in a period, of hits of one each: all of `times` from i on to before
// times[i] + period.
std::int64_t most_in(const std::vector<std::int64_t>& times, std::int64_t period) {
    std::size_t first = 0;
    std::size_t most = 0;
    for (std::size_t last = 0; last < times.size(); ++last) {
        while (times[last] >= times[first] + period) ++first;
        most = std::max(most, last - first + 1);
    }
    return static_cast<std::int64_t>(most);
}

TEST(SlidingLog, NoPeriodHoldsMoreThanTheLimit) {
    Random random{17};
    Key key = sliding_log("50/s");
    std::vector<std::int64_t> times;
    std::int64_t now = kNow;
    for (int i = 0; i < 50'000; ++i) {
        now += static_cast<std::int64_t>(random.below(10) == 0 ? random.below(500'000)
                                                               : random.below(20'000));
        if (key.hit(now).allowed) times.push_back(now);
    }
    // The limit is reached and never passed, wherever the period begins.
    EXPECT_EQ(most_in(times, kSecond), 50);
}

TEST(SlidingLog, AFullLogAdmitsWithEachHitThatLeaves) {
    Key key = sliding_log("3/s");
    EXPECT_TRUE(key.hit(kNow).allowed);
    EXPECT_TRUE(key.hit(kNow + 10, 2).allowed);
    EXPECT_EQ(key.hit(kNow + 20, 1).retry_after_us, kSecond - 20);
    EXPECT_EQ(key.hit(kNow + 20, 2).retry_after_us, kSecond - 10);
    EXPECT_FALSE(key.hit(kNow + kSecond - 1).allowed);
    EXPECT_TRUE(key.hit(kNow + kSecond).allowed);
    EXPECT_EQ(key.look(kNow + kSecond + 10, 1).remaining, 2);
}

TEST(SlidingWindow, EachWindowOfTheClockHoldsTheLimitAndNoPeriodMoreThanTwiceAsMuch) {
    const std::int64_t limit = 1000;
    // Callers who come evenly, four times as often as they are admitted.
    Key even = sliding_window("1000/s");
    std::vector<std::int64_t> times;
    for (std::int64_t now = kNow; now < kNow + 20 * kSecond; now += 250) {
        if (even.hit(now).allowed) times.push_back(now);
    }
    EXPECT_NEAR(static_cast<double>(times.size()), 20.0 * limit, 0.05 * 20 * limit);
    EXPECT_LE(most_in(times, kSecond), limit * 115 / 100);

    // The worst: all of one window at its end, and the next as soon as there is room.
    Key late = sliding_window("1000/s");
    times.clear();
    const std::int64_t edge = kNow - kNow % kSecond + kSecond;
    for (int i = 0; i < limit; ++i) {
        ASSERT_TRUE(late.hit(edge - 1).allowed);
        times.push_back(edge - 1);
    }
    for (std::int64_t now = edge; now < edge + kSecond; now += 100) {
        if (late.hit(now).allowed) times.push_back(now);
    }
    const auto in_second = static_cast<std::int64_t>(times.size()) - limit;
    EXPECT_LE(in_second, limit);
    EXPECT_LE(most_in(times, kSecond), 2 * limit);
    // It is that far off: the documents say so.
    EXPECT_GE(most_in(times, kSecond), 2 * limit * 99 / 100);

    Random random{19};
    Key key = sliding_window("50/s");
    std::map<std::int64_t, int> windows;
    times.clear();
    std::int64_t now = kNow;
    for (int i = 0; i < 50'000; ++i) {
        now += static_cast<std::int64_t>(random.below(20'000));
        if (!key.hit(now).allowed) continue;
        times.push_back(now);
        EXPECT_LE(++windows[now / kSecond], 50);
    }
    EXPECT_LE(most_in(times, kSecond), 100);
}

TEST(SlidingWindow, OneAPeriodIsAtLeastHalfAPeriodAfterTheOneBefore) {
    Random random{29};
    Key key = sliding_window("1/s");
    std::int64_t last = 0;
    std::int64_t now = kNow;
    for (int i = 0; i < 20'000; ++i) {
        now += static_cast<std::int64_t>(random.below(100'000));
        if (!key.hit(now).allowed) continue;
        EXPECT_GT(now - last, kSecond / 2);
        last = now;
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
    for (Key& key : all_kinds("2/minute")) {
        EXPECT_TRUE(key.hit(kNow, 2).allowed);
        const Outcome outcome = key.hit(kNow - kSecond);
        EXPECT_FALSE(outcome.allowed);
        EXPECT_GT(*outcome.retry_after_us, kSecond);
    }
}

TEST(Algorithms, WhatIsDeniedCostsNothing) {
    for (Key& key : all_kinds("10/minute")) {
        EXPECT_TRUE(key.hit(kNow, 7).allowed);
        const Outcome before = key.look(kNow, 1);
        EXPECT_FALSE(key.hit(kNow, 4).allowed);
        EXPECT_EQ(key.hit(kNow, 11).retry_after_us, std::nullopt);
        EXPECT_EQ(key.hit(kNow, INT64_MAX).retry_after_us, std::nullopt);
        EXPECT_EQ(key.look(kNow, 1).remaining, before.remaining);
        EXPECT_EQ(key.look(kNow, 1).reset_after_us, before.reset_after_us);
        EXPECT_TRUE(key.hit(kNow, 3).allowed);
    }
}

TEST(Algorithms, ChargingDeniedHitsEndsAtTwiceTheLimit) {
    for (Key& key : all_kinds("10/minute", true)) {
        for (int i = 0; i < 100; ++i) key.hit(kNow);
        EXPECT_LE(key.hit(kNow).reset_after_us, 120 * kSecond);
        EXPECT_EQ(key.hit(kNow, 11).retry_after_us, std::nullopt);
        EXPECT_TRUE(key.hit(kNow + 120 * kSecond, 10).allowed);
    }
}

TEST(Algorithms, ARateBeyondExactArithmeticIsRefused) {
    const auto simulate = [](Algorithm algorithm, const Rate& rate) {
        return find_algorithm(algorithm).simulate(options_of(algorithm, rate));
    };
    constexpr std::int64_t kPrime = 999'999'999'989;
    EXPECT_TRUE(failed_with(simulate(Algorithm::gcra, {kPrime, std::chrono::hours{24}, kPrime}),
                            ErrorCode::config, "999999999989/day"));
    EXPECT_TRUE(failed_with(simulate(Algorithm::fixed_window, {5, std::chrono::seconds{1}, 9}),
                            ErrorCode::config, "burst"));
    EXPECT_TRUE(
        failed_with(simulate(Algorithm::sliding_log, {100'001, std::chrono::seconds{1}, 100'001}),
                    ErrorCode::config, "sliding_log remembers each hit"));
    EXPECT_TRUE(simulate(Algorithm::sliding_window, {kPrime, std::chrono::hours{24}, kPrime}).ok());
    EXPECT_TRUE(simulate(Algorithm::gcra, {1'000'000, std::chrono::hours{24}, 1'000'000}).ok());
}

TEST(Algorithms, TheTableFollowsTheEnumeration) {
    std::size_t index = 0;
    for (const Algorithm algorithm : algorithms()) {
        EXPECT_EQ(static_cast<std::size_t>(algorithm), index++);
        EXPECT_EQ(*parse_algorithm(to_string(algorithm)), algorithm);
        EXPECT_FALSE(info(algorithm).promise.empty());
    }
}

constexpr std::int64_t kBound = std::int64_t{1} << 53;

TEST(Divisor, DividesAsADivisionDoes) {
    std::mt19937_64 random(7);
    const auto any = [&] {  // Of any size.
        const int bits = std::uniform_int_distribution<int>(1, 53)(random);
        return std::int64_t(random() >> (64 - bits));
    };
    const auto check = [](std::int64_t divisor, std::int64_t n) {
        if (n < 0 || n >= kBound) return;
        ASSERT_EQ(Divisor{divisor}.divide(n), n / divisor) << n << " / " << divisor;
    };
    for (int i = 0; i < 20'000; ++i) {
        const std::int64_t divisor = any() % kBound + 1;
        check(divisor, any());
        // About the multiples, where a rounding shows.
        const std::int64_t multiple = any() / divisor * divisor;
        const std::int64_t last = (kBound - 1) / divisor * divisor;
        for (const std::int64_t n : {multiple, last, kBound}) {
            check(divisor, n - 1);
            check(divisor, n);
        }
    }
    for (int bit = 0; bit <= 53; ++bit) {
        const std::int64_t power = std::int64_t{1} << bit;
        for (const std::int64_t divisor : {power - 1, power, power + 1}) {
            if (divisor < 1 || divisor > kBound) continue;
            for (const std::int64_t n : {std::int64_t{0}, divisor - 1, divisor, kBound - 1}) {
                check(divisor, n);
            }
        }
    }
}

using namespace std::chrono_literals;

TEST(Rate, IsReadFromText) {
    EXPECT_EQ(*Rate::parse("100/minute"), (Rate{100, 1min, 100}));
    EXPECT_EQ(*Rate::parse("10/2 hours"), (Rate{10, 2h, 10}));
    EXPECT_EQ(*Rate::parse("100/min burst 20"), (Rate{100, 1min, 20}));
    EXPECT_EQ(*Rate::parse(" 5 / S "), (Rate{5, 1s, 5}));
}

TEST(Rate, EverySpellingComesToOneText) {
    EXPECT_EQ(Rate::parse("100/60 secs")->str(), "100/minute");
    EXPECT_EQ(Rate::parse("100/m burst 100")->str(), "100/minute");
    EXPECT_EQ(Rate::parse("10/120m")->str(), "10/2 hours");
    EXPECT_EQ(Rate::parse("1/90s burst 3")->str(), "1/90 seconds burst 3");
    EXPECT_EQ((Rate{5, 500ms, 5}).str(), "5/500 milliseconds");
    EXPECT_EQ(*Rate::parse("5/500 ms"), (Rate{5, 500ms, 5}));
    EXPECT_EQ(*Rate::parse("5/1500 us"), *Rate::parse("5/1500 microseconds"));
}

TEST(Rate, WhatIsNoRateIsNamed) {
    for (const char* text : {"", "0/minute", "5/fortnight", "-1/s", "5/s burst 0", "5/0s",
                             "99999999999999999999/s", "5/367 days"}) {
        EXPECT_TRUE(failed_with(Rate::parse(text), ErrorCode::config, text)) << text;
    }
}

TEST(Rate, APeriodThatIsTooLongIsNamedAsThat) {
    for (const char* text : {"5/367 days", "5/9223372036854775807 days"}) {
        const auto refused = Rate::parse(text);
        ASSERT_FALSE(refused.ok()) << text;
        EXPECT_NE(refused.error().message.find("period in microseconds is"), std::string::npos)
            << refused.error().message;
    }
    EXPECT_FALSE(Rate::parse("5/mss").ok());
}

TEST(Rate, ManyAreSeparatedBySemicolons) {
    EXPECT_EQ(Rate::parse_many("5/s; 100/min")->size(), 2U);
    EXPECT_TRUE(failed_with(Rate::parse_many("5/s;"), ErrorCode::config));
}

}  // namespace
}  // namespace hotcount
