#include "report/numbers.hpp"

#include <gtest/gtest.h>

namespace hotcount::loadtest {
namespace {

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
