#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <hotcount/limiter.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/sql.hpp>
#include <string>
#include <vector>

#include "support/callers.hpp"
#include "support/held_channel.hpp"
#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using testing::failed_with;
using testing::in_threads;

LimiterOptions named(const char* name, const char* rate) {
    LimiterOptions options;
    options.rates = {*Rate::parse(rate)};
    options.name = name;
    return options;
}

TEST(HitAll, ThreadsThatTakeKeysInEveryOrderTakeExactlyTheLimit) {
    const auto store = *memory::Store::make({});
    std::vector<LimitedHit> hits;
    for (int i = 0; i < 4; ++i) {
        const auto limiter = *Limiter::make(store, named("n", i == 2 ? "100/day" : "900/day"));
        hits.push_back({limiter, "k" + std::to_string(i), 1});
    }
    std::atomic<int> admitted{0};
    in_threads(8, [&](int t) {
        std::vector<LimitedHit> order = hits;
        std::rotate(order.begin(), order.begin() + t % 4, order.end());
        if (t >= 4) std::reverse(order.begin(), order.end());
        for (int i = 0; i < 50; ++i) admitted += hit_all(order)->decision.allowed ? 1 : 0;
    });
    EXPECT_EQ(admitted, 100);
    for (const LimitedHit& hit : hits) {
        EXPECT_EQ(hit.limiter->peek(hit.key)->remaining, hit.limiter->limit() - 100);
    }
}

TEST(HitAll, OverSlotsWaitsForEachReserve) {
    const auto client = *redis::Client::make({});
    const auto limiter = *Limiter::make(client, named("n", "5/day"));
    const std::vector<LimitedHit> hits{{limiter, "a", 1}, {limiter, "b", 1}, {limiter, "c", 1}};
    testing::HeldChannel channel;
    std::optional<Result<JointDecision>> answer;
    hit_all_async(hits, [&](Result<JointDecision> joint) { answer.emplace(std::move(joint)); },
                  {&channel});
    auto script = channel.take();
    ASSERT_EQ(script.size(), 1U);
    script.front()(make_error(ErrorCode::reply, "of several slots", "CROSSSLOT"));
    const auto reserves = channel.take();
    ASSERT_EQ(reserves.size(), hits.size());
    for (const auto& reserve : reserves) {
        EXPECT_FALSE(answer);
        reserve(make_error(ErrorCode::unavailable, "refused"));
        EXPECT_EQ(channel.held(), 0U);  // Nothing to release.
    }
    ASSERT_TRUE(answer);
    EXPECT_TRUE(failed_with(*answer, ErrorCode::unavailable));
}

TEST(HitAll, TakesHitsAtTheRatesOfTheCall) {
    const auto store = *memory::Store::make({});
    const auto user = *Limiter::make(store, named("user", "5/day"));
    const auto plan = *user->with_rates({*Rate::parse("20/day")});
    const std::vector<LimitedHit> hits{{plan, "k", 12}, {user, "k", 2}, {plan, "k", 1}};
    const auto taken = hit_all(hits);
    ASSERT_TRUE(taken.ok());
    EXPECT_TRUE(taken->decision.allowed);
    EXPECT_EQ(taken->answered_by, std::vector<Reason>(3, Reason::allowed));
    EXPECT_FALSE(hit_all(hits)->decision.allowed);
    EXPECT_EQ(plan->peek("k")->remaining, 7);
    EXPECT_EQ(user->peek("k")->remaining, 3);
    // Without a policy for outages nothing is counted elsewhere.
    EXPECT_TRUE(user->refund_local("k", 1).ok());
    EXPECT_EQ(user->peek("k")->remaining, 3);
}

TEST(HitAll, OverADatabaseTakesOneKeyAndNamesTheStoreThatTakesNoMore) {
    const auto database = *sql::open_database("sqlite:///:memory:");
    const auto one = *Limiter::make(database, named("one", "5/day"));
    const auto other = *Limiter::make(database, named("other", "5/day"));
    ASSERT_TRUE(one->create_table().ok());
    const auto taken = hit_all(std::vector<LimitedHit>{{one, "k", 2}, {one, "k", 1}});
    ASSERT_TRUE(taken.ok());
    EXPECT_EQ(taken->decision.remaining, 2);
    const std::string told = "other (" + database->name() +
                             "): hit() them one after another, and "
                             "refund() when one refuses";
    for (const auto& hits : {std::vector<LimitedHit>{{one, "k", 1}, {other, "k", 1}},
                             std::vector<LimitedHit>{{other, "j", 1}, {other, "k", 1}}}) {
        EXPECT_TRUE(failed_with(hit_all(hits), ErrorCode::config, told));
    }
    EXPECT_EQ(one->peek("k")->remaining, 2);
    const auto here = *Limiter::make(*memory::Store::make({}), named("here", "5/day"));
    EXPECT_TRUE(failed_with(hit_all(std::vector<LimitedHit>{{here, "k", 1}, {one, "k", 1}}),
                            ErrorCode::config, "here (memory) and one ("));
    EXPECT_EQ(here->peek("k")->remaining, 5);
}

}  // namespace
}  // namespace hotcount
