#include <hotcount/limiter.hpp>
#include <hotcount/sql.hpp>

#include "support/callers.hpp"
#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;
using testing::memory_store;

class Reservations : public ::testing::TestWithParam<Algorithm> {
  protected:
    std::shared_ptr<Limiter> make(const char* rate, Duration op_keep = 24h) {
        LimiterOptions options;
        options.op_keep = op_keep;
        options.rates = *Rate::parse_many(rate);
        options.algorithm = GetParam();
        return *Limiter::make(store_, options);
    }
    std::shared_ptr<ManualClock> clock_ = std::make_shared<ManualClock>();
    std::shared_ptr<memory::Store> store_ = memory_store(clock_);
};

TEST_P(Reservations, ARefusedHitIsAdmittedWhenItIsToldTo) {
    const auto limiter = make("10/100 days");
    ASSERT_TRUE(limiter->reserve("k", 3, "a", 10s)->allowed);
    ASSERT_TRUE(limiter->reserve("k", 3, "b", 20s)->allowed);
    ASSERT_TRUE(limiter->reserve("k", 3, "c", 30s)->allowed);
    EXPECT_EQ(limiter->peek("k")->remaining, 1);
    for (const auto& [cost, wait] : {std::pair{4, 10s}, {7, 20s}, {10, 30s}}) {
        const Decision refused = *limiter->hit("k", cost);
        EXPECT_FALSE(refused.allowed);
        EXPECT_EQ(refused.retry_after, Duration{wait});
    }
    clock_->advance(20s - 1us);
    EXPECT_FALSE(limiter->test("k", 7)->allowed);
    clock_->advance(1us);
    EXPECT_TRUE(limiter->test("k", 7)->allowed);
    EXPECT_EQ(limiter->commit("k", "c", 2)->remaining, 8);
    clock_->advance(1h);
    EXPECT_EQ(limiter->peek("k")->remaining, 8);
}

TEST_P(Reservations, ACommitWithAnOpIdIsTakenOnceWhileItIsRemembered) {
    const auto limiter = make("10/100 days", 1min);
    ASSERT_TRUE(limiter->reserve("k", 5, "a", 1h)->allowed);
    EXPECT_EQ(limiter->commit_once("k", "a", 3, "order")->remaining, 7);
    EXPECT_TRUE(limiter->hit("k", 2)->allowed);
    EXPECT_EQ(limiter->commit_once("k", "a", 3, "order")->remaining, 7);
    EXPECT_EQ(limiter->peek("k")->remaining, 5);
    clock_->advance(1min);
    EXPECT_EQ(limiter->commit_once("k", "a", 1, "order")->remaining, 4);
    EXPECT_TRUE(failed_with(limiter->commit_once("k", "a", 1, ""), ErrorCode::config));
}

TEST_P(Reservations, AtSeveralRatesEachRateIsChargedWhatWasUsed) {
    const auto limiter = make("4/10 days; 6/100 days");
    ASSERT_TRUE(limiter->reserve("k", 3, "a", 1h)->allowed);
    const Decision over = *limiter->commit("k", "a", 5);
    EXPECT_FALSE(over.allowed);
    EXPECT_EQ(limiter->peek("k")->remaining, 0);
    EXPECT_EQ(limiter->refund("k", 1).value(), 0);
    EXPECT_EQ(limiter->refund("k", 1).value(), 1);
    EXPECT_EQ(limiter->refund("k", 2).value(), 3);
}

TEST_P(Reservations, ALeaseOutlivesTheStateAndTheKeyGoesWithTheLast) {
    const auto limiter = make("10/second");
    ASSERT_TRUE(limiter->hit("k", 2)->allowed);
    ASSERT_TRUE(limiter->reserve("k", 4, "a", 1h)->allowed);
    clock_->advance(59min);
    EXPECT_EQ(limiter->peek("k")->remaining, 6);
    EXPECT_EQ(limiter->peek("k")->reset_after, Duration{1min});
    EXPECT_EQ(limiter->cancel("k", "a")->remaining, 10);
    EXPECT_EQ(limiter->peek("k")->reset_after, Duration{0});
    EXPECT_TRUE(failed_with(limiter->reserve("k", 1, "a|b", 1h), ErrorCode::config));
    EXPECT_TRUE(failed_with(limiter->commit("k", "a", -1), ErrorCode::config));
}

INSTANTIATE_TEST_SUITE_P(All, Reservations,
                         ::testing::Values(Algorithm::gcra, Algorithm::token_bucket,
                                           Algorithm::fixed_window, Algorithm::sliding_window));

// LimiterOptions::lease, over a database. tests/integration/redis/test_leases.py has Redis and the bound.

class LimiterLeases : public ::testing::Test {
  protected:
    std::shared_ptr<Limiter> make(std::int64_t lease) {
        LimiterOptions options;
        options.rates = *Rate::parse_many("100/300 days");
        options.lease = lease;
        return *Limiter::make(database_, options);
    }
    std::shared_ptr<sql::Database> database_ = *sql::open_database("sqlite:///:memory:");
};

TEST_F(LimiterLeases, ALeaseIsCountedWhenItIsTakenAndSpentByItself) {
    const auto limiter = make(10);
    const auto others = make(0);
    ASSERT_TRUE(others->create_table());
    for (int i = 0; i < 10; ++i) {
        const Decision decision = *limiter->hit("k");
        EXPECT_EQ(decision.remaining, 99 - i);
        EXPECT_EQ(decision.reason, Reason::allowed);
        EXPECT_EQ(others->peek("k")->remaining, 90);
    }
    EXPECT_TRUE(limiter->hit("k")->allowed);
    EXPECT_EQ(others->peek("k")->remaining, 80);
    EXPECT_EQ(*limiter->at_most("k", 200), 89);
    EXPECT_FALSE(limiter->hit("k")->allowed);
}

TEST_F(LimiterLeases, AtOtherRatesALeaseIsOfThatRate) {
    const auto limiter = make(10);
    ASSERT_TRUE(limiter->create_table());
    const auto tight = *limiter->with_rates(*Rate::parse_many("4/300 days"));
    EXPECT_TRUE(limiter->hit("k")->allowed);
    for (int i = 0; i < 4; ++i) EXPECT_EQ(tight->hit("k")->remaining, 3 - i);
    EXPECT_FALSE(tight->hit("k")->allowed);
    EXPECT_EQ(limiter->hit("k")->remaining, 98);
}

TEST_F(LimiterLeases, WhatItDoesNotGoWithIsAConfigError) {
    LimiterOptions options;
    options.lease = LimiterOptions::kMaxLease + 1;
    EXPECT_TRUE(failed_with(Limiter::make(database_, options), ErrorCode::config));
    options.lease = 5;
    options.charge_denied = true;
    EXPECT_TRUE(failed_with(Limiter::make(database_, options), ErrorCode::config));
}

}  // namespace
}  // namespace hotcount
