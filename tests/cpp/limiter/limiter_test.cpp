#include <functional>
#include <hotcount/limiter.hpp>
#include <utility>

#include "support/callers.hpp"
#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;
using testing::in_threads;
using testing::memory_store;
using testing::succeeded;

class MemoryLimiter : public ::testing::TestWithParam<Algorithm> {
  protected:
    std::shared_ptr<Limiter> make(const char* rate = "10/minute") {
        LimiterOptions options;
        options.rates = {*Rate::parse(rate)};
        options.algorithm = GetParam();
        return *Limiter::make(store_, options);
    }
    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
    std::shared_ptr<memory::Store> store_ = memory_store(clock_);
};

TEST_P(MemoryLimiter, ThreadsTogetherAreAdmittedTheLimit) {
    const auto limiter = make("1000/minute");
    std::atomic<int> admitted{0};
    in_threads(8, [&](int) {
        for (int i = 0; i < 500; ++i) admitted += limiter->hit("hot")->allowed ? 1 : 0;
    });
    EXPECT_EQ(admitted, 1000);
}

TEST_P(MemoryLimiter, OtherRatesAreOtherStates) {
    const auto limiter = make();
    const auto plan = *limiter->with_rates({*Rate::parse("4/minute")});
    EXPECT_EQ(plan->hit("k", 3)->remaining, 1);
    EXPECT_EQ(limiter->hit("k")->remaining, 9);
    EXPECT_EQ((*plan->with_rates(limiter->options().rates))->hit("k")->remaining, 8);
    EXPECT_TRUE(failed_with(limiter->with_rates({}), ErrorCode::config));
}

TEST_P(MemoryLimiter, AHitOfTheWholeBurstIsAdmittedAMomentAhead) {
    const auto limiter = make("1/s");
    const bool is_bucket = info(GetParam()).window == WindowKind::none;
    using detail::HitAhead;
    EXPECT_EQ(HitAhead::most(*limiter, 1), is_bucket ? 10ms : 0ms);
    EXPECT_EQ(HitAhead::most(*make("100/s"), 1), 0ms);
    EXPECT_EQ(HitAhead::most(*make("1/4 ms"), 1), is_bucket ? 2ms : 0ms);
    EXPECT_EQ(HitAhead::most(**limiter->with_rates(*Rate::parse_many("1/s; 1/minute")), 1), 0ms);
    EXPECT_EQ(HitAhead::now(*limiter, "k", 1)->retry_after, Duration{0});
    clock_->advance(*limiter->peek("k")->retry_after - 10001us);
    EXPECT_FALSE(HitAhead::now(*limiter, "k", 1)->allowed);
    clock_->advance(4001us);
    const Decision decision = *HitAhead::now(*limiter, "k", 1);
    ASSERT_EQ(decision.allowed, is_bucket);
    if (!is_bucket) return;
    EXPECT_EQ(decision.retry_after, 6ms);
    EXPECT_FALSE(HitAhead::now(*limiter, "k", 1)->allowed);
    EXPECT_EQ(limiter->hit("k")->retry_after, 1006ms);
}

TEST_P(MemoryLimiter, AnOpIdIsTakenOnce) {
    const auto limiter = make();
    EXPECT_EQ(limiter->hit_once("k", 4, "a")->remaining, 6);
    EXPECT_EQ(limiter->hit_once("k", 4, "a")->remaining, 6);
    EXPECT_EQ(limiter->hit_once("k", 4, "b")->remaining, 2);
    EXPECT_EQ(limiter->peek("k")->remaining, 2);
    EXPECT_TRUE(failed_with(limiter->hit_once("k", 0, "c"), ErrorCode::config));
    EXPECT_TRUE(failed_with(limiter->hit_once("k", 1, ""), ErrorCode::config));
    clock_->advance(25h);
    EXPECT_EQ(limiter->hit_once("k", 1, "a")->remaining, 9);
}

TEST_P(MemoryLimiter, CallsThatDoNotWaitAnswerAsThoseThatDo) {
    const auto limiter = make();
    std::vector<Result<Decision>> decisions;
    const auto keep = [&](Result<Decision> decision) { decisions.push_back(std::move(decision)); };
    limiter->hit_async("k", 4, keep);
    limiter->test_async("k", 7, keep);
    limiter->peek_async("k", keep);
    limiter->hit_async("k", 0, keep);
    limiter->hit_async("", 1, keep);
    ASSERT_EQ(decisions.size(), 5U);
    EXPECT_EQ(decisions[0]->remaining, 6);
    EXPECT_FALSE(decisions[1]->allowed);
    EXPECT_EQ(decisions[2]->remaining, 6);
    EXPECT_TRUE(failed_with(decisions[3], ErrorCode::config));
    EXPECT_TRUE(failed_with(decisions[4], ErrorCode::config));

    const std::vector<std::string_view> keys{"k", "", "k", "other"};
    const std::vector<std::int64_t> costs{6, 1, 1, 10};
    bool called = false;
    limiter->hit_many_async(keys, costs, [&](Result<std::vector<Result<Decision>>> all) {
        called = true;
        ASSERT_EQ(all->size(), 4U);
        EXPECT_TRUE((*all)[0]->allowed);
        EXPECT_TRUE(failed_with((*all)[1], ErrorCode::config));
        EXPECT_FALSE((*all)[2]->allowed);
        EXPECT_EQ((*all)[3]->remaining, 0);
    });
    EXPECT_TRUE(called);

    limiter->reset_async("k", [](const Result<void>& done) { EXPECT_TRUE(done.ok()); });
    EXPECT_EQ(limiter->peek("k")->remaining, 10);
}

TEST_P(MemoryLimiter, AnAnswerIsKeptUntilItsRetryAfter) {
    const auto limiter = make();
    ASSERT_TRUE(limiter->hit("k", 10)->allowed);
    const Decision denied = *limiter->hit("k", 10);
    ASSERT_FALSE(denied.allowed);
    clock_->advance(*denied.retry_after - 1us);
    EXPECT_FALSE(limiter->hit("k", 10)->allowed);
    clock_->advance(1us);
    EXPECT_TRUE(limiter->hit("k", 10)->allowed);
}

TEST_P(MemoryLimiter, AKeyIsGoneWhenItIsAsIfNeverHit) {
    const auto limiter = make();
    const Decision decision = *limiter->hit("k", 3);
    EXPECT_EQ(store_->size(), 1U);
    clock_->advance(decision.reset_after);
    EXPECT_EQ(limiter->peek("k")->remaining, 10);
    EXPECT_EQ(store_->size(), 0U);
}

TEST_P(MemoryLimiter, WhatIsOnlyDeniedOrLookedAtLeavesNoKey) {
    const auto limiter = make();
    EXPECT_FALSE(limiter->hit("k", 11)->allowed);
    EXPECT_TRUE(limiter->test("k", 10)->allowed);
    EXPECT_EQ(limiter->peek("k")->reset_after, 0s);
    EXPECT_EQ(store_->size(), 0U);
}

// A clock whose wall time a test sets back, as NTP does.
class SteppedClock final : public Clock {
  public:
    SteadyTime steady_now() const override { return SteadyTime{1h}; }
    WallTime wall_now() const override { return wall; }
    WallTime wall{std::chrono::hours{24 * 365 * 50}};
};

// A clock whose reader may lose its processor before it has the time.
class HeldUpClock final : public Clock {
  public:
    SteadyTime steady_now() const override {
        const SteadyTime time = clock.steady_now();
        if (const auto others = std::exchange(meanwhile, nullptr)) others();
        return time;
    }
    WallTime wall_now() const override { return clock.wall_now(); }

    ManualClock clock{};
    mutable std::function<void()> meanwhile{};
};

TEST_P(MemoryLimiter, ACallThatIsHeldUpAfterReadingTheClockSetsNoStateBack) {
    const auto clock = std::make_shared<HeldUpClock>();
    store_ = memory_store(clock);
    for (const auto& limiter :
         {make("10/s"), *make("10/s")->with_rates(*Rate::parse_many("10/s; 1000/hour"))}) {
        const auto hit_until_denied = [&] {
            int admitted = 0;
            while (limiter->hit("k")->allowed) ++admitted;
            return admitted;
        };
        EXPECT_EQ(hit_until_denied(), 10);
        clock->meanwhile = [&] {
            clock->clock.advance(2s);
            EXPECT_GT(hit_until_denied(), 0);
        };
        EXPECT_FALSE(limiter->hit("k")->allowed);
        EXPECT_EQ(hit_until_denied(), 0);
    }
}

TEST_P(MemoryLimiter, AWallClockThatIsSetBackLocksNobodyOut) {
    const auto clock = std::make_shared<SteppedClock>();
    store_ = memory_store(clock);
    ASSERT_EQ(make()->hit("k")->remaining, 9);
    clock->wall -= 24h;
    const Decision decision = *make()->hit("k");
    EXPECT_EQ(decision.remaining, 8);
    EXPECT_LE(decision.reset_after, GetParam() == Algorithm::sliding_window ? 2min : 1min);
}

INSTANTIATE_TEST_SUITE_P(All, MemoryLimiter,
                         ::testing::Values(Algorithm::fixed_window, Algorithm::sliding_window,
                                           Algorithm::sliding_log, Algorithm::gcra,
                                           Algorithm::token_bucket, Algorithm::leaky_bucket),
                         [](const auto& test) { return std::string{to_string(test.param)}; });

class LimiterOfSeveralRates : public MemoryLimiter {
  protected:
    std::shared_ptr<Limiter> make_several(const char* rates) {
        LimiterOptions options;
        options.rates = *Rate::parse_many(rates);
        options.algorithm = GetParam();
        return *Limiter::make(store_, options);
    }
};
INSTANTIATE_TEST_SUITE_P(All, LimiterOfSeveralRates,
                         ::testing::Values(Algorithm::fixed_window, Algorithm::sliding_window,
                                           Algorithm::sliding_log, Algorithm::gcra,
                                           Algorithm::token_bucket, Algorithm::leaky_bucket),
                         [](const auto& test) { return std::string{to_string(test.param)}; });

TEST_P(LimiterOfSeveralRates, AHitThatOneRefusesIsTakenFromNone) {
    const auto limiter = make_several("3/s; 5/300 days");
    EXPECT_EQ(limiter->limit(), 3);
    EXPECT_EQ(limiter->hit("k", 3)->remaining, 0);
    const Decision by_second = *limiter->hit("k");
    EXPECT_FALSE(by_second.allowed);
    EXPECT_EQ(by_second.violated, 1);
    EXPECT_EQ(by_second.limit, 3);
    clock_->advance(2s);
    // Two are left of the long one, and nothing of it was spent by what the short one refused.
    EXPECT_EQ(limiter->peek("k")->remaining, 2);
    const Decision by_day = *limiter->hit("k", 3);
    EXPECT_FALSE(by_day.allowed);
    EXPECT_EQ(by_day.violated, 2);
    EXPECT_EQ(by_day.rate, 1);
    EXPECT_EQ(by_day.limit, 5);
    // Nothing of the short one was spent by what the long one refused.
    EXPECT_TRUE(limiter->hit("k", 2)->allowed);
    const Decision by_both = *limiter->hit("k", 2);
    EXPECT_EQ(by_both.violated, 3);
    EXPECT_EQ(by_both.rate, 1);
    const Decision never = *limiter->hit("k", 4);
    EXPECT_EQ(never.reason, Reason::cost_above_limit);
    EXPECT_EQ(never.retry_after, std::nullopt);
    EXPECT_EQ(never.rate, 0);
}

TEST_P(LimiterOfSeveralRates, WaitingForRetryAfterIsEnough) {
    const auto limiter = make_several("3/s; 5/minute; 40/hour");
    for (int i = 0; i < 200; ++i) {
        const Decision decision = *limiter->hit("k", 1 + i % 3);
        if (decision.allowed) continue;
        clock_->advance(*decision.retry_after - 1us);
        ASSERT_FALSE(limiter->test("k", 1 + i % 3)->allowed);
        clock_->advance(1us);
        ASSERT_TRUE(limiter->hit("k", 1 + i % 3)->allowed);
    }
}

TEST(Headers, RoundUpToWholeSeconds) {
    const Decision denied{.allowed = false,
                          .limit = 10,
                          .remaining = 0,
                          .retry_after = 1500ms,
                          .reset_after = 59'001ms,
                          .reason = Reason::limited};
    using Fields = std::vector<std::pair<std::string, std::string>>;
    const Rate rate = Rate::parse("10/minute").value();
    EXPECT_EQ(headers(denied, HeaderStyle::ietf, "api", rate),
              (Fields{{"RateLimit-Policy", "\"api\";q=10;w=60"},
                      {"RateLimit", "\"api\";r=0;t=2"},
                      {"Retry-After", "2"}}));
    EXPECT_EQ(headers(denied, HeaderStyle::legacy, "api", rate),
              (Fields{{"X-RateLimit-Limit", "10"},
                      {"X-RateLimit-Remaining", "0"},
                      {"X-RateLimit-Reset", "60"},
                      {"Retry-After", "2"}}));
}

TEST(Headers, TellTheLongRunFromTheBurst) {
    const Decision admitted{.allowed = true,
                            .limit = 9,
                            .remaining = 8,
                            .retry_after = 0ms,
                            .reset_after = 12s,
                            .reason = Reason::allowed};
    const Rate rate = Rate::parse("5/minute burst 9").value();
    using Fields = std::vector<std::pair<std::string, std::string>>;
    EXPECT_EQ(headers(admitted, HeaderStyle::ietf, "api", rate),
              (Fields{{"RateLimit-Policy", "\"api\";q=5;w=60;hotcount-burst=9"},
                      {"RateLimit", "\"api\";r=8;t=12"}}));
}

}  // namespace
}  // namespace hotcount
