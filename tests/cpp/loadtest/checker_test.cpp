#include "checkers/checker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace hotcount::loadtest {
namespace {

using testing::Contains;
using testing::HasSubstr;

Attempt vote(std::int64_t item, std::int64_t user, std::int64_t sent, std::int64_t done,
             Status status = Status::ok) {
    return {item, user, 1, sent, done, status};
}
Attempt unvote(std::int64_t item, std::int64_t user, std::int64_t sent, std::int64_t done,
               Status status = Status::ok) {
    return {item, user, 0, sent, done, status};
}

AuditResult check(std::vector<Attempt> attempts, std::vector<VoteRow> rows,
                  std::vector<ItemCount> counts) {
    AuditResult result;
    check_votes(std::move(attempts), rows, counts, result);
    return result;
}

/// One (item, user) alone: does the audit accept that it ended with `value`?
bool accepts(std::vector<Attempt> attempts, std::int64_t value) {
    return check(std::move(attempts), {{1, 1, value}}, {{1, value, value}}).passed();
}

TEST(CheckVotes, PassesWhereEverythingAcknowledgedIsThereAndCounted) {
    const AuditResult result = check({vote(2, 1, 0, 1), vote(1, 7, 0, 1), vote(1, 3, 2, 3)},
                                     {{1, 3, 1}, {1, 7, 1}, {2, 1, 1}}, {{1, 2, 2}, {2, 1, 1}});
    EXPECT_TRUE(result.passed());
    EXPECT_TRUE(result.counts_agree());
    EXPECT_EQ(result.acknowledged, 3U);
    EXPECT_EQ(result.rows, 3U);
    EXPECT_EQ(result.live, 3U);
    EXPECT_EQ(result.items, 2U);
}

TEST(CheckVotes, AnAcknowledgedVoteWithoutARowIsLost) {
    const AuditResult result =
        check({vote(1, 1, 0, 1), vote(1, 2, 0, 1)}, {{1, 2, 1}}, {{1, 1, 1}});
    EXPECT_EQ(result.lost(), 1U);
    EXPECT_EQ(result.doubled(), 0U);
    EXPECT_EQ(result.ghost(), 0U);
    EXPECT_THAT(result.examples, Contains(HasSubstr("lost: item 1 user 1")));
}

TEST(CheckVotes, AnAcknowledgedVoteMissingFromTheCountIsLost) {
    const AuditResult stored = check({vote(1, 1, 0, 1)}, {{1, 1, 1}}, {{1, 0, 1}});
    EXPECT_EQ(stored.lost(), 1U);
    EXPECT_EQ(stored.stored_low, 1U);
    const AuditResult counted = check({vote(1, 1, 0, 1)}, {{1, 1, 1}}, {{1, 1, 0}});
    EXPECT_EQ(counted.lost(), 1U);
    EXPECT_EQ(counted.counted_low, 1U);
    // Missing from both is still one vote; an item without a row counts as 0.
    EXPECT_EQ(check({vote(1, 1, 0, 1)}, {{1, 1, 1}}, {}).lost(), 1U);
}

TEST(CheckVotes, ACountAboveItsLiveVotesIsDouble) {
    const AuditResult result = check({vote(1, 1, 0, 1), vote(5, 1, 0, 1)}, {{1, 1, 1}, {5, 1, 1}},
                                     {{1, 2, 2}, {3, 4, 0}, {5, 1, 1}});
    EXPECT_EQ(result.doubled(), 5U);
    EXPECT_EQ(result.lost(), 0U);
    EXPECT_FALSE(result.counts_agree());
}

TEST(CheckVotes, ASecondRowForTheSameUserIsDouble) {
    const AuditResult result = check({vote(1, 1, 0, 1)}, {{1, 1, 1}, {1, 1, 1}}, {{1, 2, 2}});
    EXPECT_EQ(result.doubled(), 1U);
    EXPECT_EQ(result.lost(), 0U);
    EXPECT_EQ(result.ghost(), 0U);
}

TEST(CheckVotes, ARowThatCountsTwiceIsDouble) {
    EXPECT_EQ(check({vote(1, 1, 0, 1)}, {{1, 1, 2}}, {{1, 2, 2}}).doubled(), 1U);
}

TEST(CheckVotes, ARowThatNobodyAttemptedIsAGhost) {
    const AuditResult result =
        check({vote(1, 5, 0, 1)}, {{1, 4, 1}, {1, 5, 1}, {9, 1, 0}}, {{1, 2, 2}, {9, 0, 0}});
    EXPECT_EQ(result.ghost(), 2U);
    EXPECT_EQ(result.lost(), 0U);
    EXPECT_EQ(result.doubled(), 0U);
}

TEST(CheckVotes, AWrongRowIsFoundOnceWhetherItIsCountedOrNot) {
    const std::vector<Attempt> one = {vote(1, 5, 0, 1)};
    for (const std::int64_t counted : {1, 2}) {
        const AuditResult ghost = check(one, {{1, 4, 1}, {1, 5, 1}}, {{1, counted, counted}});
        EXPECT_EQ(ghost.ghost(), 1U) << counted;
        EXPECT_EQ(ghost.lost() + ghost.doubled(), 0U) << counted;
        EXPECT_EQ(ghost.counts_agree(), counted == 2);
        const AuditResult twice = check(one, {{1, 5, 1}, {1, 5, 1}}, {{1, counted, counted}});
        EXPECT_EQ(twice.doubled(), 1U) << counted;
        EXPECT_EQ(twice.lost() + twice.ghost(), 0U) << counted;
    }
    for (const std::int64_t counted : {0, 1}) {
        const AuditResult gone = check(one, {{1, 5, 0}}, {{1, counted, counted}});
        EXPECT_EQ(gone.lost(), 1U) << counted;
        EXPECT_EQ(gone.doubled() + gone.ghost(), 0U) << counted;
    }
    // What is wrong beyond that is still found.
    EXPECT_EQ(check(one, {{1, 4, 1}, {1, 5, 1}}, {{1, 0, 0}}).lost(), 1U);
    EXPECT_EQ(check(one, {{1, 4, 1}, {1, 5, 1}}, {{1, 3, 3}}).doubled(), 1U);
    EXPECT_EQ(check(one, {{1, 5, 0}}, {{1, 2, 2}}).doubled(), 1U);
    // Of another item nothing is excused.
    EXPECT_EQ(check({vote(1, 5, 0, 1), vote(2, 5, 0, 1)}, {{1, 4, 1}, {1, 5, 1}, {2, 5, 1}},
                    {{1, 1, 1}, {2, 0, 0}})
                  .lost(),
              1U);
}

TEST(CheckVotes, ARowWhoseAttemptsWereAllRefusedIsAGhost) {
    const AuditResult result = check({vote(1, 5, 0, 1, Status::failed)}, {{1, 5, 1}}, {{1, 1, 1}});
    EXPECT_EQ(result.ghost(), 1U);
    EXPECT_THAT(result.examples, Contains(HasSubstr("refused")));
    EXPECT_TRUE(check({vote(1, 5, 0, 1, Status::failed)}, {}, {}).passed());
}

TEST(CheckVotes, AnUnansweredVoteMayBeThereOrNot) {
    EXPECT_TRUE(accepts({vote(1, 1, 0, 0, Status::unknown)}, 1));
    EXPECT_TRUE(accepts({vote(1, 1, 0, 0, Status::unknown)}, 0));
    EXPECT_TRUE(check({vote(1, 1, 0, 0, Status::unknown)}, {}, {}).passed());
    // But an acknowledged one beside it settles it.
    EXPECT_FALSE(accepts({vote(1, 1, 0, 1), vote(1, 1, 5, 0, Status::unknown)}, 0));
    EXPECT_TRUE(accepts({vote(1, 1, 0, 1), unvote(1, 1, 5, 0, Status::unknown)}, 0));
    EXPECT_TRUE(accepts({vote(1, 1, 0, 1), unvote(1, 1, 5, 0, Status::unknown)}, 1));
    // An unknown one may take effect late, after what was sent after it.
    EXPECT_TRUE(accepts({unvote(1, 1, 0, 9, Status::unknown), vote(1, 1, 10, 11)}, 0));
}

TEST(CheckVotes, TheLastAcknowledgedAnswerDecides) {
    EXPECT_TRUE(accepts({vote(1, 1, 0, 1), unvote(1, 1, 2, 3)}, 0));
    EXPECT_FALSE(accepts({vote(1, 1, 0, 1), unvote(1, 1, 2, 3)}, 1));
    EXPECT_TRUE(accepts({vote(1, 1, 0, 1), unvote(1, 1, 2, 3), vote(1, 1, 4, 5)}, 1));
    EXPECT_FALSE(accepts({vote(1, 1, 0, 1), unvote(1, 1, 2, 3), vote(1, 1, 4, 5)}, 0));
    // A refused one decides nothing.
    EXPECT_FALSE(accepts({vote(1, 1, 0, 1), unvote(1, 1, 2, 3, Status::failed)}, 0));
    // An acknowledged un-vote that is still live: lost, not double.
    EXPECT_EQ(check({unvote(1, 1, 0, 1)}, {{1, 1, 1}}, {{1, 1, 1}}).lost(), 1U);
}

TEST(CheckVotes, OverlappingAnswersMayHaveComeInEitherOrder) {
    const std::vector<Attempt> overlapping{vote(1, 1, 0, 10), unvote(1, 1, 5, 8)};
    EXPECT_TRUE(accepts(overlapping, 0));
    EXPECT_TRUE(accepts(overlapping, 1));
    // Three: the first was over before the last began.
    const std::vector<Attempt> chain{vote(1, 1, 0, 4), unvote(1, 1, 3, 9), unvote(1, 1, 6, 7)};
    EXPECT_TRUE(accepts(chain, 0));
    EXPECT_FALSE(accepts(chain, 1));
}

TEST(CheckVotes, GivesTheFirstFewExamplesOnly) {
    std::vector<Attempt> attempts;
    for (std::int64_t user = 1; user <= 100; ++user) attempts.push_back(vote(1, user, 0, 1));
    const AuditResult result = check(attempts, {}, {{1, 0, 0}});
    EXPECT_EQ(result.lost(), 100U);
    EXPECT_EQ(result.examples.size(), AuditResult::kMostExamples);
}

TEST(CheckVotes, PartsAddUp) {
    AuditResult sum;
    sum.add(check({vote(1, 1, 0, 1)}, {}, {}));
    sum.add(check({vote(2, 1, 0, 1), vote(2, 2, 0, 0, Status::unknown)}, {{2, 1, 1}, {2, 9, 1}},
                  {{2, 3, 3}}));
    EXPECT_EQ(sum.lost(), 1U);
    EXPECT_EQ(sum.ghost(), 1U);
    EXPECT_EQ(sum.doubled(), 1U);
    EXPECT_EQ(sum.acknowledged, 2U);
    EXPECT_EQ(sum.unknown, 1U);
    EXPECT_EQ(sum.examples.size(), 4U);
}

TEST(CheckVotes, SumsOfWildNumbersDoNotWrapAround) {
    // Two counts that are each 2^63 too low: together 2^64, which is 0 in 64 bits.
    const std::vector<Attempt> votes = {vote(1, 1, 0, 1), vote(2, 1, 0, 1)};
    const std::vector<VoteRow> rows = {{1, 1, 1}, {2, 1, 1}};
    const std::int64_t low = INT64_MIN + 1;
    const AuditResult found = check(votes, rows, {{1, low, low}, {2, low, low}});
    EXPECT_FALSE(found.passed());
    EXPECT_FALSE(found.counts_agree());
    EXPECT_EQ(found.lost(), UINT64_MAX);
    AuditResult sum = found;
    sum.add(found);
    EXPECT_EQ(sum.lost(), UINT64_MAX);
    const AuditResult high =
        check(votes, rows, {{1, INT64_MAX, INT64_MIN}, {2, INT64_MAX, INT64_MIN}, {3, 1, 1}});
    EXPECT_FALSE(high.passed());
    EXPECT_GT(high.doubled(), UINT64_MAX / 2);
    // The rows' values as well.
    EXPECT_FALSE(check(votes, {{1, 1, INT64_MAX}, {1, 2, INT64_MAX}, {1, 3, 2}, {2, 1, 1}},
                       {{1, 0, 0}, {2, 1, 1}})
                     .passed());
    for (const std::int64_t wild : {INT64_MIN, INT64_MAX}) {
        AuditResult counter;
        check_counter(1, wild, {1, 0, 0, true}, counter);
        check_counter(2, wild, {1, 0, 0, true}, counter);
        EXPECT_FALSE(counter.passed());
    }
}

TEST(AnswersWithoutPredecessor, EachLifeCountsFromOne) {
    const auto missing = answers_without_predecessor;
    EXPECT_EQ(missing({}, 0), 0U);
    EXPECT_EQ(missing({1, 2, 3, 1, 2, 1}, 1), 0U);
    EXPECT_EQ(missing({1, 2, 3, 1, 2, 1}, 0), 0U) << "it may have expired";
    EXPECT_EQ(missing({1, 2, 2}, 0), 1U) << "two lives came to 2, and one began";
    EXPECT_EQ(missing({1, 3}, 0), 1U);
    EXPECT_EQ(missing({1, 3, 3, 3, 4}, 0), 3U);
    EXPECT_EQ(missing({2, 3}, 0), 1U) << "no life began";
    EXPECT_EQ(missing({1, 0, -4}, 0), 2U);
    EXPECT_EQ(missing({1, 2}, 3), 1U) << "a value that nobody was told";
    EXPECT_EQ(missing({}, 3), 1U);
}

TEST(AllowFailover, UpToWhatTheReplicaNeedNotHaveHadIsNoBreach) {
    const auto lost = [](std::uint64_t may_lose) {
        AuditResult result;
        check_counter(1, 6, {10, 0, 0, true}, result);
        result.wrong_reads = 2;
        result.allow_failover({may_lose, {}});
        return result;
    };
    for (const std::uint64_t too_few : {0, 3}) {
        EXPECT_FALSE(lost(too_few).passed());
        EXPECT_EQ(lost(too_few).lost(), 4U);
        EXPECT_EQ(lost(too_few).lost_in_failover, 0U);
    }
    EXPECT_TRUE(lost(4).passed());
    EXPECT_EQ(lost(4).word(), "allowed");
    EXPECT_EQ(lost(4).lost_in_failover, 4U);
    AuditResult doubled;
    check_counter(1, 12, {10, 0, 0, true}, doubled);
    doubled.allow_failover({100, {{1, {100, 1}}, {2, {0, 1}}}});
    EXPECT_FALSE(doubled.passed()) << "a failover doubles nothing, and 1 lacks one -1 at most";
    EXPECT_EQ(doubled.doubled(), 1U);
    EXPECT_EQ(doubled.lost_in_failover, 1U);
}

// An add and a -1 that were lost in different failovers leave the sum right, and steps that are not.
TEST(AllowFailover, AnswersOfAnItemMayBeWrongByItsLostWrites) {
    const auto answers = [](const MayLose& may_lose) {
        AuditResult result;
        result.wrong_answers = 2;
        result.counters_off.push_back({1, 0, 2});
        result.allow_failover(may_lose);
        return result;
    };
    EXPECT_EQ(answers({100, {{1, {2, 1}}}}).word(), "allowed");
    EXPECT_EQ(answers({100, {{1, {1, 1}}}}).word(), "broken");
    EXPECT_EQ(answers({100, {{2, {2, 1}}}}).word(), "broken");
}

TEST(CheckCounter, TheValueLiesBetweenAcknowledgedAndUnknown) {
    const CounterBounds bounds{10, 3, -2, true};
    for (std::int64_t value = 8; value <= 13; ++value) {
        AuditResult result;
        check_counter(1, value, bounds, result);
        EXPECT_TRUE(result.passed()) << value;
    }
    AuditResult low;
    check_counter(1, 6, bounds, low);
    EXPECT_EQ(low.lost(), 2U);
    AuditResult high;
    check_counter(1, 14, bounds, high);
    EXPECT_EQ(high.doubled(), 1U);
    AuditResult ghost;
    check_counter(1, 1, CounterBounds{}, ghost);
    EXPECT_EQ(ghost.ghost(), 1U);
}

}  // namespace
}  // namespace hotcount::loadtest
