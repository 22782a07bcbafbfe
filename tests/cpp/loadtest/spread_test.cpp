#include "report/numbers.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace hotcount::loadtest {
namespace {

TEST(Spread, TakesTheMiddleAndTheEnds) {
    const Spread odd = spread_of(std::vector<double>{5, 1, 3});
    EXPECT_EQ(odd.median, 3);
    EXPECT_EQ(odd.min, 1);
    EXPECT_EQ(odd.max, 5);
    EXPECT_EQ(spread_of(std::vector<double>{4, 1, 3, 2}).median, 2.5);
    EXPECT_EQ(spread_of(std::vector<double>{7}).median, 7);
    EXPECT_EQ(spread_of({}).median, 0);
}

TEST(Spread, APercentileNeedsAValueAboveIt) {
    EXPECT_EQ(least_values(0.5), 2U);
    EXPECT_EQ(least_values(0.99), 100U);
    EXPECT_EQ(least_values(0.9999), 10'000U);
    EXPECT_EQ(least_values(0.99999), 100'000U);
    EXPECT_TRUE(can_tell(1000, 0.999));
    EXPECT_FALSE(can_tell(999, 0.999));
    EXPECT_TRUE(can_tell(1, 1)) << "the slowest is always there";
}

TEST(Spread, ComparesRoundsPairwise) {
    // The machine halves its speed in the second round: the ratio does not move.
    EXPECT_EQ(paired_ratios(std::vector<double>{100, 50, 100}, std::vector<double>{10, 5, 10}),
              (std::vector<double>{10, 10, 10}));
    // A missing or empty partner takes its round out.
    EXPECT_EQ(paired_ratios(std::vector<double>{100, 50}, std::vector<double>{0, 5, 9}),
              (std::vector<double>{10}));
}

}  // namespace
}  // namespace hotcount::loadtest
