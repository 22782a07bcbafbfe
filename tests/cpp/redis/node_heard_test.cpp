#include "redis/node_heard.hpp"

#include <gtest/gtest.h>

namespace hotcount::redis {
namespace {

using std::chrono::milliseconds;

constexpr Duration kSilence = milliseconds{1500};

SteadyTime at(int ms) { return SteadyTime{} + std::chrono::hours{1} + milliseconds{ms}; }

TEST(NodeHeard, FirstReplyIsDoubted) {
    NodeHeard heard;
    EXPECT_EQ(heard.hear(at(0), kSilence), at(0));
    EXPECT_EQ(heard.last(), at(0));
}

TEST(NodeHeard, AllLanesDoubtItAfterASilenceUntilAnotherNodeHasConfirmedIt) {
    NodeHeard heard;
    heard.hear(at(0), kSilence);
    heard.confirm(at(1));
    EXPECT_EQ(heard.hear(at(1400), kSilence), std::nullopt);
    EXPECT_EQ(heard.hear(at(3000), kSilence), at(3000)) << "the lane that reads first";
    EXPECT_EQ(heard.hear(at(3001), kSilence), at(3000)) << "the one that reads next";
    heard.confirm(at(2999));
    EXPECT_EQ(heard.hear(at(3002), kSilence), at(3000)) << "it was asked before the doubt";
    heard.confirm(at(3000));
    heard.confirm(at(2000));
    EXPECT_EQ(heard.hear(at(3003), kSilence), std::nullopt);
}

}  // namespace
}  // namespace hotcount::redis
