#include "votes/tables/replica.hpp"

#include <gtest/gtest.h>

namespace hotcount {
namespace {

TEST(ReplicaTest, AHeartbeatIsATimeAndANumber) {
    EXPECT_EQ(heartbeat_time("1763850000000000 9f3a"), 1763850000000000);
    EXPECT_EQ(heartbeat_time("0 0"), 0);
}

TEST(ReplicaTest, WhatIsNoHeartbeatHasNoTime) {
    for (const char* const text :
         {"", " ", "12", "12x", "x 12", " 12 x", "99999999999999999999 1", "12\t1"}) {
        EXPECT_EQ(heartbeat_time(text), std::nullopt) << text;
    }
}

}  // namespace
}  // namespace hotcount
