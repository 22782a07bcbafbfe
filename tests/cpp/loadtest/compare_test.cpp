#include "report/compare.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

namespace hotcount::loadtest {
namespace {

TEST(OrderOfRound, EveryStrategyTakesEveryPlace) {
    for (const std::size_t strategies : {1U, 2U, 3U, 5U}) {
        std::vector<std::vector<bool>> seen(strategies, std::vector<bool>(strategies, false));
        for (std::uint32_t round = 0; round < 2 * strategies; ++round) {
            std::vector<std::size_t> order = order_of_round(round, strategies);
            for (std::size_t place = 0; place < strategies; ++place) {
                seen[place][order[place]] = true;
            }
            std::sort(order.begin(), order.end());
            std::vector<std::size_t> all(strategies);
            std::iota(all.begin(), all.end(), std::size_t{0});
            ASSERT_EQ(order, all);
        }
        for (const auto& place : seen) {
            EXPECT_EQ(std::count(place.begin(), place.end(), true),
                      static_cast<std::ptrdiff_t>(strategies));
        }
    }
}

TEST(OrderOfRound, ChangesFromRoundToRound) {
    for (std::uint32_t round = 1; round < 6; ++round) {
        EXPECT_NE(order_of_round(round, 3), order_of_round(round - 1, 3));
    }
}

TEST(RateFor, LeavesHalfOfWhatTheMachineCanDo) {
    EXPECT_EQ(rate_for(5000, 40'000), 5000);
    EXPECT_EQ(rate_for(5000, 10'000), 5000);
    EXPECT_EQ(rate_for(5000, 7'400), 3500);
    EXPECT_EQ(rate_for(5000, 900), 450);
    EXPECT_EQ(rate_for(5000, 60), 30);
    EXPECT_EQ(rate_for(5000, 1), 1);
}

TrialResult trial(std::uint64_t votes, Conclusion conclusion = Conclusion::passed,
                  const std::string& reason = {}) {
    TrialResult result;
    result.load.tally.votes_ok = votes;
    result.load.window_s = 2;
    result.conclusion = conclusion;
    if (!reason.empty()) result.reasons.push_back(reason);
    return result;
}

PartResult part(std::vector<TrialResult> naive, std::vector<TrialResult> batched) {
    PartResult result;
    result.part.strategies = {"naive", "batched"};
    result.part.baseline = "naive";
    result.summaries.resize(2);
    result.summaries[0].strategy = "naive";
    result.summaries[0].trials = std::move(naive);
    result.summaries[1].strategy = "batched";
    result.summaries[1].trials = std::move(batched);
    summarise(result);
    return result;
}

TEST(Summarise, TakesMediansAndRatiosWithinRounds) {
    const PartResult result =
        part({trial(100), trial(50), trial(100)}, {trial(1000), trial(600), trial(1100)});
    EXPECT_EQ(result.summaries[0].writes_per_s.median, 50);
    EXPECT_EQ(result.summaries[1].writes_per_s.median, 500);
    EXPECT_EQ(result.summaries[1].writes_per_s.min, 300);
    EXPECT_EQ(result.summaries[1].writes_per_s.max, 550);
    EXPECT_EQ(result.summaries[0].ratio.median, 1);
    EXPECT_EQ(result.summaries[1].ratio.median, 11);
    EXPECT_EQ(result.summaries[1].ratio.min, 10);
    EXPECT_EQ(result.summaries[1].ratio.max, 12);
    EXPECT_EQ(result.conclusion, Conclusion::passed);
}

TEST(Summarise, AStrategyThatCannotKeepUpIsAFinding) {
    const std::string overloaded = "overloaded: 60.0 % of the schedule was offered";
    const PartResult one = part({trial(100, Conclusion::inconclusive, overloaded)}, {trial(1000)});
    EXPECT_TRUE(one.summaries[0].overloaded);
    EXPECT_EQ(one.summaries[0].conclusion, Conclusion::inconclusive);
    EXPECT_EQ(one.conclusion, Conclusion::passed);
    // But if none could, the rate was wrong for this machine.
    EXPECT_EQ(part({trial(100, Conclusion::inconclusive, overloaded)},
                   {trial(100, Conclusion::inconclusive, overloaded)})
                  .conclusion,
              Conclusion::inconclusive);
}

TEST(Summarise, AnythingElseIsNot) {
    EXPECT_EQ(part({trial(0, Conclusion::inconclusive, "nothing was acknowledged")}, {trial(1)})
                  .conclusion,
              Conclusion::inconclusive);
    const PartResult broken =
        part({trial(1), trial(1)}, {trial(1, Conclusion::broken, "1 lost"), trial(1)});
    EXPECT_EQ(broken.summaries[1].conclusion, Conclusion::broken);
    EXPECT_EQ(broken.conclusion, Conclusion::broken);
}

TEST(CanonicalParts, CompareOneHotItemManyItemsAnOpenLoopAndCounters) {
    Settings settings;
    settings.trial.workers = 64;
    const std::vector<Part> parts = canonical_parts(settings);
    ASSERT_EQ(parts.size(), 4U);
    EXPECT_EQ(parts[0].settings.traffic.items, 1U);
    EXPECT_EQ(parts[0].settings.traffic.mix.vote, 100);
    EXPECT_EQ(parts[0].settings.workers, 64U);
    EXPECT_EQ(parts[0].strategies, (std::vector<std::string>{"naive", "batched"}));
    EXPECT_EQ(parts[1].settings.arrival, Arrival::closed);
    EXPECT_EQ(parts[1].settings.workers, 64U);
    EXPECT_EQ(parts[1].strategies, (std::vector<std::string>{"naive", "slotted", "batched"}));
    EXPECT_EQ(parts[1].baseline, "naive");
    EXPECT_EQ(parts[2].settings.arrival, Arrival::poisson);
    EXPECT_EQ(parts[2].settings.rate_per_s, 5000);
    EXPECT_TRUE(parts[2].rate_may_fall);
    EXPECT_EQ(parts[3].settings.workload, WorkloadKind::counters);
    EXPECT_EQ(parts[3].settings.traffic.dup, 0);
    // With a Redis, what is on it comes as well.
    Settings with_redis = settings;
    with_redis.trial.redis_url = "redis://h";
    const std::vector<Part> more = canonical_parts(with_redis);
    ASSERT_EQ(more.size(), 6U);
    EXPECT_EQ(more[3].strategies, (std::vector<std::string>{"memory", "redis"}));
    EXPECT_EQ(more[4].settings.workload, WorkloadKind::limiter);
    EXPECT_EQ(more[5].settings.workload, WorkloadKind::zset);
    for (const Part& part : more) {
        for (const std::string& name : part.strategies) {
            EXPECT_EQ(find_strategy(name).value().workload, part.settings.workload) << name;
        }
    }
    // A rate that the user chose stays.
    settings.trial.rate_per_s = 800;
    EXPECT_EQ(canonical_parts(settings)[2].settings.rate_per_s, 800);
    EXPECT_FALSE(canonical_parts(settings)[2].rate_may_fall);
}

}  // namespace
}  // namespace hotcount::loadtest
