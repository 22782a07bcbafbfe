#include "statistics/statistics.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <hotcount/detail/base/random.hpp>
#include <numbers>
#include <vector>

namespace hotcount::loadtest {
namespace {

TEST(Statistics, TakesTheMiddleAndTheEnds) {
    const Spread odd = spread_of(std::vector<double>{5, 1, 3});
    EXPECT_EQ(odd.median, 3);
    EXPECT_EQ(odd.min, 1);
    EXPECT_EQ(odd.max, 5);
    EXPECT_EQ(spread_of(std::vector<double>{4, 1, 3, 2}).median, 2.5);
    EXPECT_EQ(spread_of(std::vector<double>{7}).median, 7);
    EXPECT_EQ(spread_of({}).median, 0);
}

TEST(Statistics, APercentileNeedsAValueAboveIt) {
    EXPECT_EQ(least_values(0.5), 2U);
    EXPECT_EQ(least_values(0.99), 100U);
    EXPECT_EQ(least_values(0.9999), 10'000U);
    EXPECT_EQ(least_values(0.99999), 100'000U);
    EXPECT_TRUE(can_tell(1000, 0.999));
    EXPECT_FALSE(can_tell(999, 0.999));
    EXPECT_TRUE(can_tell(1, 1)) << "the slowest is always there";
}

TEST(Statistics, ComparesRoundsPairwise) {
    // The machine halves its speed in the second round: the ratio does not move.
    EXPECT_EQ(paired_ratios(std::vector<double>{100, 50, 100}, std::vector<double>{10, 5, 10}),
              (std::vector<double>{10, 10, 10}));
    // A missing or empty partner takes its round out.
    EXPECT_EQ(paired_ratios(std::vector<double>{100, 50}, std::vector<double>{0, 5, 9}),
              (std::vector<double>{10}));
}

/// Values around `middle` whose logarithms are normal with this standard deviation.
std::vector<double> noisy(Random& random, std::size_t count, double middle, double deviation) {
    std::vector<double> values;
    for (std::size_t i = 0; i < count; ++i) {
        const double normal = std::sqrt(-2 * std::log1p(-random.unit())) *
                              std::cos(2 * std::numbers::pi * random.unit());
        values.push_back(middle * std::exp(deviation * normal));
    }
    return values;
}

// The p values were made by counting all signs, and all choices of ranks, in Python's itertools.
TEST(Wilcoxon, IsExactForFewPairs) {
    // Darwin's plants: scipy.stats.wilcoxon's documentation has the same p.
    const std::vector<double> darwin = {6, 8, 14, 16, 23, 24, 28, 29, 41, -48, 49, 56, 60, -67, 75};
    EXPECT_DOUBLE_EQ(wilcoxon_signed_rank(darwin), 0.041259765625);
    EXPECT_DOUBLE_EQ(wilcoxon_signed_rank(std::vector<double>{1, 2, 3, 4, 5, 6}), 0.03125);
    EXPECT_DOUBLE_EQ(wilcoxon_signed_rank(std::vector<double>{-1, -2, -3, -4, -5, -6}), 0.03125);
    // Equal sizes share their ranks, and what does not differ has none.
    EXPECT_DOUBLE_EQ(wilcoxon_signed_rank(std::vector<double>{1, 1, -1, 2, 3, 3, 5}), 0.0625);
    EXPECT_DOUBLE_EQ(wilcoxon_signed_rank(std::vector<double>{2.5, -1, 3, 0, 0.5, -0.2, 4, 6}),
                     0.109375);
    EXPECT_EQ(wilcoxon_signed_rank(std::vector<double>{0, 0}), 1);
    EXPECT_EQ(wilcoxon_signed_rank({}), 1);
}

TEST(Wilcoxon, TheApproximationForManyPairsMeetsTheExactOne) {
    std::vector<double> differences;
    for (int size = 1; size <= 100; ++size) differences.push_back(size % 3 == 0 ? -size : size);
    const double exact = wilcoxon_signed_rank(differences);
    // One pair more, of the least size, changes next to nothing but the way it is computed.
    for (double& difference : differences) difference *= 2;
    differences.push_back(1);
    const double approximate = wilcoxon_signed_rank(differences);
    EXPECT_GT(exact, 0);
    EXPECT_NEAR(approximate / exact, 1, 0.1);
}

TEST(RankSum, IsExactForFewValues) {
    EXPECT_DOUBLE_EQ(rank_sum(std::vector<double>{1, 2, 3, 4}, std::vector<double>{5, 6, 7, 8}),
                     2.0 / 70);
    // wilcox.test's documentation in R has the same data, with one side: 0.1272.
    EXPECT_NEAR(
        rank_sum(std::vector<double>{0.80, 0.83, 1.89, 1.04, 1.45, 1.38, 1.91, 1.64, 0.73, 1.46},
                 std::vector<double>{1.15, 0.88, 0.90, 0.74, 1.21}),
        0.2544122544122544, 1e-12);
    EXPECT_NEAR(rank_sum(std::vector<double>{1, 2, 2, 5}, std::vector<double>{2, 3, 6}), 0.4,
                1e-12);
    EXPECT_EQ(rank_sum({}, std::vector<double>{1}), 1);
}

TEST(RankSum, TheApproximationForManyValuesMeetsTheExactOne) {
    Random random(3);
    const std::vector<double> values = noisy(random, 30, 1.1, 0.15);
    std::vector<double> others = noisy(random, 30, 1, 0.15);
    const double exact = rank_sum(values, others);
    others.push_back(median(others));
    EXPECT_GT(exact, 0);
    EXPECT_NEAR(rank_sum(values, others) / exact, 1, 0.3);
}

TEST(Holm, AdjustsTheSmallestMostAndKeepsTheOrder) {
    const std::vector<double> adjusted = holm(std::vector<double>{0.01, 0.04, 0.03, 0.005});
    ASSERT_EQ(adjusted.size(), 4U);
    EXPECT_DOUBLE_EQ(adjusted[0], 0.03);
    EXPECT_DOUBLE_EQ(adjusted[1], 0.06);
    EXPECT_DOUBLE_EQ(adjusted[2], 0.06);
    EXPECT_DOUBLE_EQ(adjusted[3], 0.02);
    EXPECT_EQ(holm(std::vector<double>{0.9, 0.8}), (std::vector<double>{1, 1}));
    EXPECT_TRUE(holm({}).empty());
}

TEST(LeastRounds, AreThoseWithWhichTheTestCanReachItsLevel) {
    EXPECT_EQ(least_rounds(1), 6U);
    EXPECT_EQ(least_rounds(2), 7U);
    EXPECT_EQ(least_rounds(3), 7U);
    EXPECT_EQ(least_rounds(4), 8U);
    EXPECT_EQ(least_rounds(10), 9U);
}

TEST(Bootstrap, HasNoIntervalOfFewRounds) {
    const std::vector<double> six = {1, 2, 3, 4, 5, 6};
    EXPECT_FALSE(bootstrap_median(std::vector<double>{1, 2, 3, 4, 5}, 1));
    ASSERT_TRUE(bootstrap_median(six, 1));
    EXPECT_FALSE(bootstrap_ratio_of_medians(six, std::vector<double>{1, 2}, 1));
    EXPECT_FALSE(bootstrap_ratio_of_medians(six, std::vector<double>(6, 0.0), 1));
}

TEST(Bootstrap, DependsOnTheSeedAlone) {
    Random random(5);
    const std::vector<double> values = noisy(random, 20, 100, 0.3);
    EXPECT_EQ(bootstrap_median(values, 7), bootstrap_median(values, 7));
    EXPECT_EQ(bootstrap_median(std::vector<double>(8, 3.5), 7), (Interval{3.5, 3.5}));
}

TEST(Bootstrap, TheIntervalHoldsTheTruthAboutAsOftenAsItSays) {
    Random random(11);
    int held = 0;
    for (int comparison = 0; comparison < 200; ++comparison) {
        const std::vector<double> values = noisy(random, 10, 100, 0.2);
        if (bootstrap_median(values, static_cast<std::uint64_t>(comparison))->contains(100)) ++held;
    }
    EXPECT_GE(held, 180);
    EXPECT_LT(held, 200) << "an interval that always holds it is too wide";
}

/// A table of one comparison, beside a control.
bool calls(Random& random, double slower, double deviation, std::size_t rounds) {
    const std::vector<double> baseline = noisy(random, rounds, 1000, deviation);
    const std::vector<double> again = noisy(random, rounds, 1000, deviation);
    const std::vector<double> other = noisy(random, rounds, 1000 * (1 - slower), deviation);
    const Ratio control = paired_ratio(again, baseline, 1);
    Ratio ratio = paired_ratio(other, baseline, 2);
    Ratio* const table[] = {&ratio};
    call_differences(table, control.interval);
    return ratio.called;
}

// Of `hotcount-load compare --workload counters -s memory --rounds 100 -d 50ms --warmup 10ms -w 1` on
// two processors with nothing else to do: the logarithm of the ratio of neighbours deviates by 0.045,
// by its median.
constexpr double kMeasuredNoise = 0.032;
constexpr std::size_t kRounds = 24;

TEST(CallDifferences, SeldomCallsOneBetweenAThingAndItself) {
    for (const double deviation : {0.002, kMeasuredNoise, 0.5}) {
        Random random(21);
        int called = 0;
        for (int comparison = 0; comparison < 50; ++comparison) {
            if (calls(random, 0, deviation, kRounds)) ++called;
        }
        EXPECT_LE(called, 6) << deviation;
    }
}

TEST(CallDifferences, FindsFivePercentInTheMeasuredNoise) {
    Random random(22);
    int called = 0;
    for (int comparison = 0; comparison < 50; ++comparison) {
        if (calls(random, 0.05, kMeasuredNoise, kRounds)) ++called;
    }
    EXPECT_GE(called, 45);
}

TEST(CallDifferences, CallsNothingOfFewRoundsOrInsideOfTheNoise) {
    Random random(23);
    EXPECT_FALSE(calls(random, 0.9, 0.001, 5));
    EXPECT_TRUE(calls(random, 0.9, 0.001, 6));
    Ratio ratio = paired_ratio(std::vector<double>{11, 11, 11, 11, 11, 11, 11},
                               std::vector<double>(7, 10), 1);
    Ratio* const table[] = {&ratio};
    call_differences(table, Interval{0.8, 1.2});
    EXPECT_FALSE(ratio.called) << "the control differs from itself by as much";
    call_differences(table, Interval{0.98, 1.02});
    EXPECT_TRUE(ratio.called);
    EXPECT_DOUBLE_EQ(ratio.p, 0.015625);
}

TEST(UnpairedRatio, ComparesMedians) {
    const Ratio ratio = unpaired_ratio(std::vector<double>{20, 22, 24, 21, 23, 20},
                                       std::vector<double>{10, 10, 11, 12, 10, 9}, 1);
    EXPECT_DOUBLE_EQ(ratio.spread.median, 2.15);
    EXPECT_DOUBLE_EQ(ratio.spread.min, 20.0 / 12);
    EXPECT_DOUBLE_EQ(ratio.spread.max, 24.0 / 9);
    ASSERT_TRUE(ratio.interval);
    EXPECT_GT(ratio.interval->low, 1.5);
    EXPECT_LT(ratio.p, 0.01);
}

}  // namespace
}  // namespace hotcount::loadtest
