#include "load/workload.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace hotcount::loadtest {
namespace {

auto tied(const Operation& operation) {
    return std::tuple(operation.item, operation.user, operation.kind, operation.resent);
}

TEST(Workload, IsAFunctionOfTheSeedAlone) {
    Workload first(TrafficSettings{.seed = 9});
    Workload again(TrafficSettings{.seed = 9});
    Workload other(TrafficSettings{.seed = 10});
    int equal = 0;
    for (int i = 0; i < 10'000; ++i) {
        const Operation operation = first.next();
        ASSERT_EQ(tied(operation), tied(again.next()));
        if (tied(operation) == tied(other.next())) ++equal;
    }
    EXPECT_LT(equal, 1000);
}

TEST(Workload, NoUserVotesTwiceOnAnItemUnlessResentOnPurpose) {
    TrafficSettings settings;
    settings.items = 50;
    settings.users = 10'000;
    settings.dup = 0.05;
    Workload workload(settings);
    std::set<std::pair<std::int64_t, std::int64_t>> votes;
    int resent = 0;
    int fresh = 0;
    for (int i = 0; i < 20'000; ++i) {
        const Operation operation = workload.next();
        if (operation.kind != OperationKind::vote) continue;
        ASSERT_GE(operation.item, 1);
        ASSERT_LE(operation.item, 50);
        ASSERT_GE(operation.user, 1);
        ASSERT_LE(operation.user, 10'000);
        const bool is_new = votes.emplace(operation.item, operation.user).second;
        ASSERT_EQ(is_new, !operation.resent);
        ++(operation.resent ? resent : fresh);
    }
    EXPECT_EQ(workload.repeated(), 0U);
    EXPECT_NEAR(static_cast<double>(resent) / (resent + fresh), 0.05, 0.01);
}

TEST(Workload, KeepsTheSharesOfTheMix) {
    TrafficSettings settings;
    settings.mix = {60, 10, 30};
    Workload workload(settings);
    std::map<OperationKind, int> kinds;
    constexpr int kOperations = 100'000;
    for (int i = 0; i < kOperations; ++i) ++kinds[workload.next().kind];
    EXPECT_NEAR(kinds[OperationKind::vote], 0.6 * kOperations, 1000);
    EXPECT_NEAR(kinds[OperationKind::unvote], 0.1 * kOperations, 1000);
    EXPECT_NEAR(kinds[OperationKind::read], 0.3 * kOperations, 1000);
}

TEST(Workload, SendsNothingThatTheMixLeavesOut) {
    TrafficSettings votes_only;
    votes_only.mix = {1, 0, 0};
    votes_only.dup = 0;
    Workload votes(votes_only);
    TrafficSettings reads_only;
    reads_only.mix = {0, 0, 1};
    Workload reads(reads_only);
    for (int i = 0; i < 20'000; ++i) {
        const Operation vote = votes.next();
        ASSERT_EQ(vote.kind, OperationKind::vote);
        ASSERT_FALSE(vote.resent);
        const Operation read = reads.next();
        ASSERT_EQ(read.kind, OperationKind::read);
        ASSERT_EQ(read.user, 0);
    }
}

TEST(Workload, UnvotesAimAtEarlierVotes) {
    TrafficSettings settings;
    settings.mix = {80, 20, 0};
    Workload workload(settings);
    std::map<std::pair<std::int64_t, std::int64_t>, int> voted_at;
    int unvotes = 0;
    for (int i = 0; i < 50'000; ++i) {
        const Operation operation = workload.next();
        const std::pair key(operation.item, operation.user);
        if (operation.kind == OperationKind::vote) {
            voted_at.emplace(key, i);
            continue;
        }
        ++unvotes;
        ASSERT_TRUE(voted_at.count(key));
        // Far enough back that its vote has been answered, whatever the number of workers; in the
        // beginning, as far as there are votes.
        ASSERT_GE(i - voted_at[key], std::min(1024, static_cast<int>(voted_at.size()) / 4));
    }
    EXPECT_NEAR(unvotes, 10'000, 500);
}

TEST(Workload, AShortStreamHasItsUnvotesToo) {
    TrafficSettings settings;
    settings.mix = {80, 5, 15};
    Workload workload(settings);
    int unvotes = 0;
    for (int i = 0; i < 500; ++i) {
        if (workload.next().kind == OperationKind::unvote) ++unvotes;
    }
    EXPECT_NEAR(unvotes, 25, 12);
}

TEST(Workload, SpreadsTheHotItemsOverTheIds) {
    TrafficSettings settings;
    settings.items = 1000;
    settings.mix = {1, 0, 0};
    Workload workload(settings);
    std::map<std::int64_t, int> votes;
    for (int i = 0; i < 100'000; ++i) ++votes[workload.next().item];
    std::vector<std::pair<int, std::int64_t>> hottest;
    for (const auto& [item, count] : votes) hottest.emplace_back(count, item);
    std::sort(hottest.rbegin(), hottest.rend());
    std::set<std::int64_t> hundreds;
    for (std::size_t rank = 0; rank < 10; ++rank) hundreds.insert(hottest[rank].second / 100);
    EXPECT_GE(hundreds.size(), 4U);
    // Zipf .99 over 1,000 items gives the first one in 7.7 votes.
    EXPECT_NEAR(hottest[0].first, 100'000 / 7.7, 1500);
}

TEST(Workload, CountsTheVotesThatHadToRepeatAUser) {
    TrafficSettings settings;
    settings.items = 2;
    settings.users = 10;
    settings.mix = {1, 0, 0};
    settings.dup = 0;
    Workload workload(settings);
    std::set<std::pair<std::int64_t, std::int64_t>> distinct;
    for (int i = 0; i < 1000; ++i) {
        const Operation operation = workload.next();
        distinct.emplace(operation.item, operation.user);
    }
    EXPECT_EQ(distinct.size(), 20U);
    EXPECT_EQ(workload.repeated(), 980U);
}

}  // namespace
}  // namespace hotcount::loadtest
