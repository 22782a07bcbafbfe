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

TEST(Table, AlignsItsColumns) {
    Table table({"strategy", "rate", "note"});
    table.add({"naive", "1,234", ""});
    table.add({"a longer one", "5", "x"});
    EXPECT_EQ(table.str(),
              "strategy       rate  note\n"
              "naive         1,234\n"
              "a longer one      5     x\n");
}

TEST(Grouped, PutsCommasIntoWholeNumbers) {
    EXPECT_EQ(grouped(0), "0");
    EXPECT_EQ(grouped(999.4), "999");
    EXPECT_EQ(grouped(999.6), "1,000");
    EXPECT_EQ(grouped(1234567), "1,234,567");
    EXPECT_EQ(grouped(-1234), "-1,234");
    EXPECT_EQ(grouped(-0.2), "0");
}

TEST(ThreeDigits, KeepsThreeAndNoExponent) {
    EXPECT_EQ(three_digits(0), "0");
    EXPECT_EQ(three_digits(0.012345), "0.0123");
    EXPECT_EQ(three_digits(1.2345), "1.23");
    EXPECT_EQ(three_digits(12.345), "12.3");
    EXPECT_EQ(three_digits(99.96), "100");
    EXPECT_EQ(three_digits(123.45), "123");
    EXPECT_EQ(three_digits(12345), "12,300");
    EXPECT_EQ(three_digits(0.9996), "1.00");
    EXPECT_EQ(three_digits(9.996), "10.0");
    EXPECT_EQ(three_digits(0.001), "0.00100");
    EXPECT_EQ(three_digits(1000), "1,000");
    EXPECT_EQ(three_digits(-1.5), "-1.50");
}

}  // namespace
}  // namespace hotcount::loadtest
