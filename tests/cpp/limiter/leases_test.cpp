// LimiterOptions::lease, over a database. tests/integration/redis/test_leases.py has Redis and the bound.
#include <hotcount/limiter.hpp>
#include <hotcount/sql.hpp>

#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using testing::failed_with;

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
