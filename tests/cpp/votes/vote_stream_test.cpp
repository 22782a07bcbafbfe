#include "votes/cache/vote_stream.hpp"

#include <gtest/gtest.h>

#include <limits>

namespace hotcount {
namespace {

constexpr std::string_view kSpace = "streams";

// docs/reference/storage.md has the rule; the numbers are another program's. With other ones, two releases would
// put an item's votes into two streams.
TEST(VoteStreamTest, AnItemIsInTheShardThatEveryReleaseKnows) {
    EXPECT_EQ(VoteStream::shard_of(kSpace, sql::Id{std::int64_t{0}}), 15U);
    EXPECT_EQ(VoteStream::shard_of(kSpace, sql::Id{std::int64_t{1}}), 12U);
    EXPECT_EQ(VoteStream::shard_of(kSpace, sql::Id{std::numeric_limits<std::int64_t>::min()}), 9U);
    EXPECT_EQ(VoteStream::shard_of(kSpace, sql::Id{std::string{"photo:\xc3\xa9"}}), 3U);
    EXPECT_EQ(
        VoteStream::shard_of(kSpace, sql::Id{std::string{"38a2540c-f8d9-4273-82b1-aeb0d4a96861"}}),
        6U);
}

TEST(VoteStreamTest, ANumberAndTheSameTextAreInOneShard) {
    EXPECT_EQ(VoteStream::shard_of(kSpace, sql::Id{std::int64_t{7}}),
              VoteStream::shard_of(kSpace, sql::Id{std::string{"7"}}));
}

TEST(VoteStreamTest, AllItemsAreInOneShardWhereDifferentIdsMayBeOneItem) {
    for (const char* const item : {"cafe", "caf\xc3\xa9", "CAFE"}) {
        EXPECT_EQ(VoteStream::shard_of("streams.1", sql::Id{std::string{item}}), 0U);
    }
}

TEST(VoteStreamTest, AVersionOrdersAsItsIdDoesAndKeepsItsMilliseconds) {
    constexpr std::int64_t kNow = 1'800'000'000'000;
    constexpr std::int64_t kMostInOneMillisecond = (std::int64_t{1} << 20) - 1;
    EXPECT_LT(version_of(kNow, 0), version_of(kNow, 1));
    EXPECT_LT(version_of(kNow, kMostInOneMillisecond), version_of(kNow + 1, 0));
    EXPECT_EQ(milliseconds_of(version_of(kNow, kMostInOneMillisecond)), kNow);
}

}  // namespace
}  // namespace hotcount
