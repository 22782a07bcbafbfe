#include <hotcount/op_id.hpp>
#include <set>

#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;

TEST(OpId, TheExampleOfTheStandardIsRead) {
    // RFC 9562, appendix A.6.
    const auto made = made_at("017F22E2-79B0-7CC3-98C4-DC0C0C07398F");
    ASSERT_TRUE(made);
    EXPECT_EQ(*made, 1645557742000ms);
    EXPECT_EQ(*made_at("ffffffff-ffff-7fff-bfff-ffffffffffff"), 281474976710655ms);
}

TEST(OpId, ANewOneCarriesItsTimeAndItsVersion) {
    Random random{1};
    const std::string id = new_op_id(WallTime{1645557742000ms}, random);
    EXPECT_EQ(id.substr(0, 15), "017f22e2-79b0-7") << id;
    EXPECT_EQ(id.size(), 36U);
    EXPECT_EQ(*made_at(id), 1645557742000ms);
    std::set<std::string> seen;
    for (int i = 0; i < 10'000; ++i) EXPECT_TRUE(seen.insert(new_op_id()).second);
}

TEST(OpId, WhatIsNoSuchIdHasNoTime) {
    for (const char* text :
         {"", "a", "017F22E2-79B0-4CC3-98C4-DC0C0C07398F", "017F22E2-79B0-7CC3-C8C4-DC0C0C07398F",
          "017F22E2-79B0-7CC3-18C4-DC0C0C07398F", "017F22E2x79B0-7CC3-98C4-DC0C0C07398F",
          "017F22E2-79B0-7CC3-98C4-DC0C0C07398G", "017F22E279B07CC398C4DC0C0C07398F",
          "{17F22E2-79B0-7CC3-98C4-DC0C0C07398F", "017F22E2-79B0-7CC3-98C4-DC0C0C07398F0"}) {
        EXPECT_FALSE(made_at(text)) << text;
    }
}

}  // namespace
}  // namespace hotcount
