#include <hotcount/limiter.hpp>

#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;

TEST(Rate, IsReadFromText) {
    EXPECT_EQ(*Rate::parse("100/minute"), (Rate{100, 1min, 100}));
    EXPECT_EQ(*Rate::parse("10/2 hours"), (Rate{10, 2h, 10}));
    EXPECT_EQ(*Rate::parse("100/min burst 20"), (Rate{100, 1min, 20}));
    EXPECT_EQ(*Rate::parse(" 5 / S "), (Rate{5, 1s, 5}));
}

TEST(Rate, EverySpellingComesToOneText) {
    EXPECT_EQ(Rate::parse("100/60 secs")->str(), "100/minute");
    EXPECT_EQ(Rate::parse("100/m burst 100")->str(), "100/minute");
    EXPECT_EQ(Rate::parse("10/120m")->str(), "10/2 hours");
    EXPECT_EQ(Rate::parse("1/90s burst 3")->str(), "1/90 seconds burst 3");
    EXPECT_EQ((Rate{5, 500ms, 5}).str(), "5/500 milliseconds");
    EXPECT_EQ(*Rate::parse("5/500 ms"), (Rate{5, 500ms, 5}));
    EXPECT_EQ(*Rate::parse("5/1500 us"), *Rate::parse("5/1500 microseconds"));
}

TEST(Rate, WhatIsNoRateIsNamed) {
    for (const char* text : {"", "0/minute", "5/fortnight", "-1/s", "5/s burst 0", "5/0s",
                             "99999999999999999999/s", "5/367 days"}) {
        EXPECT_TRUE(failed_with(Rate::parse(text), ErrorCode::config, text)) << text;
    }
}

TEST(Rate, APeriodThatIsTooLongIsNamedAsThat) {
    for (const char* text : {"5/367 days", "5/9223372036854775807 days"}) {
        const auto refused = Rate::parse(text);
        ASSERT_FALSE(refused.ok()) << text;
        EXPECT_NE(refused.error().message.find("period in microseconds is"), std::string::npos)
            << refused.error().message;
    }
    EXPECT_FALSE(Rate::parse("5/mss").ok());
}

TEST(Rate, ManyAreSeparatedBySemicolons) {
    EXPECT_EQ(Rate::parse_many("5/s; 100/min")->size(), 2U);
    EXPECT_TRUE(failed_with(Rate::parse_many("5/s;"), ErrorCode::config));
}

}  // namespace
}  // namespace hotcount
