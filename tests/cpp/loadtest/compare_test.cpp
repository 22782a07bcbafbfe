#include "report/compare.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "made_parts.hpp"

namespace hotcount::loadtest {
namespace {

TEST(OrderOfRound, EveryContenderRunsOnceAndTheNextRoundIsBackwards) {
    for (const std::size_t contenders : {1U, 2U, 3U, 6U}) {
        for (std::uint32_t round = 0; round < 20; round += 2) {
            const std::vector<std::size_t> order = order_of_round(7, round, contenders);
            std::vector<std::size_t> next = order_of_round(7, round + 1, contenders);
            std::reverse(next.begin(), next.end());
            EXPECT_EQ(next, order);
            std::sort(next.begin(), next.end());
            std::vector<std::size_t> all(contenders);
            std::iota(all.begin(), all.end(), std::size_t{0});
            EXPECT_EQ(next, all);
        }
    }
}

TEST(OrderOfRound, IsDrawnFromTheSeed) {
    std::set<std::vector<std::size_t>> orders;
    for (std::uint64_t seed = 0; seed < 100; ++seed) {
        EXPECT_EQ(order_of_round(seed, 4, 3), order_of_round(seed, 4, 3));
        orders.insert(order_of_round(seed, 0, 3));
    }
    EXPECT_EQ(orders.size(), 6U) << "every order comes";
}

TEST(BestCallers, AreLookedForFromFewToAll) {
    EXPECT_EQ(callers_to_try(1), (std::vector<std::uint32_t>{1}));
    EXPECT_EQ(callers_to_try(6), (std::vector<std::uint32_t>{1, 2, 4, 6}));
    EXPECT_EQ(callers_to_try(64), (std::vector<std::uint32_t>{1, 2, 4, 8, 16, 32, 64}));
    EXPECT_EQ(callers_to_try(kMostWorkers).size(), 11U);
}

TEST(BestCallers, AreThoseThatClearlyMadeMore) {
    EXPECT_EQ(best_callers({{1, 900}, {4, 1500}, {64, 300}}, 64), 4U);
    EXPECT_EQ(best_callers({{1, 900}, {4, 1050}, {64, 1000}}, 64), std::nullopt);
    EXPECT_EQ(best_callers({{1, 900}, {64, 1000}}, 64), std::nullopt);
    // The search was ended before it came to all callers.
    EXPECT_EQ(best_callers({{1, 900}, {4, 100}}, 64), std::nullopt);
    EXPECT_EQ(best_callers({}, 64), std::nullopt);
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
    return part_of({{"naive", std::move(naive)}, {"batched", std::move(batched)}});
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

TEST(Summarise, AControlThatDidNotRunIsNoFindingButABrokenOneIs) {
    PartResult result = part_of({{"naive", {trial(10'000), trial(15'000)}},
                                 {"batched", {trial(11'000), trial(16'600)}},
                                 {"naive/again", {trial(10'010), trial(14'990)}}},
                                Role::control);
    EXPECT_EQ(result.conclusion, Conclusion::passed);
    TrialResult& control = result.summaries[2].trials[0];
    control.conclusion = Conclusion::inconclusive;
    summarise(result);
    EXPECT_EQ(result.summaries[2].conclusion, Conclusion::inconclusive);
    EXPECT_EQ(result.conclusion, Conclusion::passed);
    control.conclusion = Conclusion::broken;
    summarise(result);
    EXPECT_EQ(result.conclusion, Conclusion::broken);
}

TEST(CanonicalParts, CompareOneHotItemManyItemsAndCounters) {
    Settings settings;
    settings.trial.workers = 64;
    const std::vector<Part> parts = canonical_parts(settings);
    ASSERT_EQ(parts.size(), 3U);
    EXPECT_EQ(parts[0].settings.traffic.items, 1U);
    EXPECT_EQ(parts[0].settings.traffic.mix.vote, 100);
    EXPECT_EQ(parts[0].settings.workers, 64U);
    EXPECT_EQ(parts[0].strategies, (std::vector<std::string>{"naive", "batched"}));
    EXPECT_EQ(parts[1].settings.arrival, Arrival::closed);
    EXPECT_EQ(parts[1].settings.workers, 64U);
    EXPECT_EQ(parts[1].strategies, (std::vector<std::string>{"naive", "slotted", "batched"}));
    EXPECT_EQ(parts[1].baseline, "naive");
    EXPECT_TRUE(parts[0].find_best);
    EXPECT_EQ(parts[2].settings.workload, WorkloadKind::counters);
    EXPECT_EQ(parts[2].settings.traffic.dup, 0);
    // With a Redis, what is on it comes as well.
    Settings with_redis = settings;
    with_redis.trial.redis_url = "redis://h";
    const std::vector<Part> more = canonical_parts(with_redis);
    ASSERT_EQ(more.size(), 5U);
    EXPECT_EQ(more[2].strategies, (std::vector<std::string>{"memory", "redis"}));
    EXPECT_EQ(more[3].settings.workload, WorkloadKind::limiter);
    EXPECT_EQ(more[4].settings.workload, WorkloadKind::zset);
    for (const Part& part : more) {
        for (const std::string& name : part.strategies) {
            EXPECT_EQ(find_strategy(name).value().workload, part.settings.workload) << name;
        }
    }
}

}  // namespace
}  // namespace hotcount::loadtest
