// Strategy batched with a cache, in one process; with Redis and on servers in
// tests/contract/test_votes_mirror.py.
#include <atomic>
#include <hotcount/votes/votes.hpp>
#include <thread>
#include <vector>

#include "support/result_matchers.hpp"
#include "support/temporary_database.hpp"

namespace hotcount {
namespace {

using testing::failed_with;
using testing::succeeded;

class MirrorTest : public ::testing::Test {
  protected:
    void SetUp() override {
        const std::vector<sql::Id> items{std::int64_t{1}, std::int64_t{2}};
        ASSERT_TRUE(succeeded(votes_->create_tables()));
        ASSERT_TRUE(succeeded(votes_->add_items(items)));
    }
    Count count(std::int64_t item, Consistency consistency = Consistency::cached) {
        auto counted = votes_->count(item, {}, consistency);
        EXPECT_TRUE(succeeded(counted));
        return counted ? std::move(counted).value() : Count{-1, false, {}, "", 0};
    }
    testing::TemporaryDatabase file_;
    std::shared_ptr<sql::Database> database_ = file_.open();
    std::shared_ptr<memory::Store> store_ = *memory::Store::make();
    std::shared_ptr<Votes> votes_ = *Votes::make(database_, {}, store_);
};

TEST_F(MirrorTest, ACopyHasTheVotesSince) {
    EXPECT_EQ(count(1).source, "sql");
    ASSERT_TRUE(succeeded(votes_->cast({std::int64_t{1}, std::int64_t{7}})));
    const Count copy = count(1);
    EXPECT_EQ(copy.source, "cache");
    EXPECT_EQ(copy.value, 1);
    EXPECT_FALSE(copy.exact);
    EXPECT_EQ(count(1, Consistency::exact).source, "sql");
}

TEST_F(MirrorTest, ACountOfVotesThatOnlyComeNeverFallsAndEndsRight) {
    constexpr std::int64_t kThreads = 8;
    constexpr std::int64_t kEach = 50;
    count(1);
    count(2);
    std::atomic<std::int64_t> voting{kThreads};
    std::vector<std::thread> threads;
    for (std::int64_t index = 0; index < kThreads; ++index) {
        threads.emplace_back([&, index] {
            for (std::int64_t k = 0; k < kEach; ++k) {
                const std::int64_t user = index * kEach + k;
                EXPECT_TRUE(succeeded(votes_->cast({std::int64_t{1 + k % 2}, user})));
            }
            --voting;
        });
    }
    std::int64_t seen = 0;
    while (voting > 0) {
        const std::int64_t now = count(1).value;
        EXPECT_GE(now, seen);
        seen = now;
    }
    for (std::thread& thread : threads) thread.join();
    for (const std::int64_t item : {1, 2}) {
        const Count copy = count(item);
        EXPECT_EQ(copy.source, "cache");
        EXPECT_EQ(copy.value, kThreads * kEach / 2);
    }
}

TEST_F(MirrorTest, AnAnonymousBallotIsChecked) {
    EXPECT_TRUE(failed_with(Ballot::anonymous(std::int64_t{1}, "", 1), ErrorCode::config));
    EXPECT_TRUE(failed_with(Ballot::anonymous(std::int64_t{1}, "a", 0), ErrorCode::config));
    const auto ballot = Ballot::anonymous(std::int64_t{1}, "a", 3);
    ASSERT_TRUE(succeeded(ballot));
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(succeeded(votes_->cast(*ballot)));
    EXPECT_EQ(count(1).value, 3);
}

TEST_F(MirrorTest, OtherStrategiesTakeNone) {
    VotesOptions options;
    options.strategy = VoteStrategy::naive;
    EXPECT_TRUE(failed_with(Votes::make(database_, options, store_), ErrorCode::config));
}

}  // namespace
}  // namespace hotcount
