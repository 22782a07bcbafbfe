// What callers were told against what they can have been told: each history here has an answer that a
// person can work out.
#include "checkers/read_checker.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <hotcount/detail/base/random.hpp>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "load/strategy.hpp"

namespace hotcount::loadtest {
namespace {

using std::chrono::nanoseconds;
using testing::Contains;
using testing::HasSubstr;

constexpr std::int64_t kItem = 7;

AnswerRules exact(bool adds) {
    AnswerRules rules;
    rules.adds = adds;
    rules.reads_within = Duration{0};
    return rules;
}

AnswerRules eventual(bool adds) {
    AnswerRules rules;
    rules.adds = adds;
    return rules;
}

Attempt add(std::int64_t value, std::int64_t sent, std::int64_t done) {
    return {kItem, 0, value, sent, done, Status::ok};
}
Attempt vote(std::int64_t user, std::int64_t value, std::int64_t sent, std::int64_t done) {
    return {kItem, user, value, sent, done, Status::ok};
}
Attempt unanswered(Attempt attempt) {
    attempt.status = Status::unknown;
    return attempt;
}

AuditResult reads(const std::vector<Attempt>& writes, const std::vector<Read>& asked,
                  const AnswerRules& rules) {
    AuditResult result;
    check_reads(kItem, writes, asked, rules, result);
    EXPECT_EQ(result.reads, asked.size());
    return result;
}

/// One read alone, from `sent` to `sent` + 1.
AuditResult read(const std::vector<Attempt>& writes, std::int64_t number, std::int64_t sent,
                 const AnswerRules& rules) {
    return reads(writes, {{number, sent, sent + 1, false}}, rules);
}

TEST(ReadChecker, AReadHasWhatWasDoneAndMayHaveWhatWasBegun) {
    const std::vector<Attempt> writes = {add(1, 10, 20), add(1, 30, 40)};
    for (const auto& [number, sent, right] : std::vector<std::tuple<int, int, bool>>{
             {0, 5, true},    // Before anything.
             {1, 5, false},   // Too early.
             {0, 15, true},   // The add is under way: not in it yet, ...
             {1, 15, true},   // ... or already.
             {0, 25, false},  // It was acknowledged.
             {1, 25, true},
             {2, 25, false},  // The second one has not begun.
             {1, 35, true},
             {2, 35, true},
             {1, 45, false},
             {2, 45, true}}) {
        const AuditResult result = read(writes, number, sent, exact(true));
        EXPECT_EQ(result.passed(), right) << number << " at " << sent;
    }
}

TEST(ReadChecker, AReadThatMeetsAnEdgeBelongsToBothSides) {
    const std::vector<Attempt> writes = {add(1, 10, 20)};
    EXPECT_TRUE(reads(writes, {{1, 5, 10, false}}, exact(true)).passed());
    EXPECT_TRUE(reads(writes, {{0, 20, 25, false}}, exact(true)).passed());
    EXPECT_FALSE(reads(writes, {{0, 21, 25, false}}, exact(true)).passed());
}

TEST(ReadChecker, ALongReadMayHaveAnyNumberThatWasRightMeanwhile) {
    const std::vector<Attempt> writes = {add(1, 10, 11), add(1, 20, 21), add(-1, 30, 31)};
    for (const std::int64_t number : {0, 1, 2}) {
        EXPECT_TRUE(reads(writes, {{number, 5, 35, false}}, exact(true)).passed()) << number;
    }
    EXPECT_FALSE(reads(writes, {{3, 5, 35, false}}, exact(true)).passed());
    EXPECT_FALSE(reads(writes, {{0, 12, 35, false}}, exact(true)).passed());
}

TEST(ReadChecker, StalenessIsHowLongTheNumberHadBeenWrong) {
    const std::vector<Attempt> writes = {add(1, 100, 200), add(1, 300, 400), add(1, 500, 600)};
    const AuditResult result = read(writes, 1, 1000, eventual(true));
    EXPECT_TRUE(result.passed()) << "it promised nothing";
    EXPECT_EQ(result.reads_stale(), 1U);
    EXPECT_EQ(result.staleness_ns.max(), 600) << "1 was right until 400";
    EXPECT_EQ(result.versions_behind.max(), 2);
    EXPECT_EQ(result.reads_never_right, 0U);

    AnswerRules within = eventual(true);
    within.reads_within = nanoseconds{600};
    EXPECT_TRUE(read(writes, 1, 1000, within).passed());
    within.reads_within = nanoseconds{599};
    const AuditResult late = read(writes, 1, 1000, within);
    EXPECT_EQ(late.stale_reads, 1U);
    EXPECT_THAT(late.examples, Contains(HasSubstr("stale: item 7")));
    EXPECT_FALSE(reads(writes, {{1, 1000, 1001, true}}, within).passed()) << "it said exact";
}

TEST(ReadChecker, TheLastTimeCountsIfANumberWasRightTwice) {
    const std::vector<Attempt> writes = {add(1, 10, 20), add(-1, 30, 40), add(1, 50, 60)};
    const AuditResult result = read(writes, 0, 100, eventual(true));
    EXPECT_EQ(result.staleness_ns.max(), 40);
    EXPECT_EQ(result.versions_behind.max(), 1);
}

TEST(ReadChecker, ANumberThatNoMomentGivesIsWrongWhereMoreIsPromised) {
    const std::vector<Attempt> writes = {add(1, 10, 20), add(-1, 30, 40)};
    // Without the first add, as somebody may see it who gets the second one sooner.
    EXPECT_TRUE(read(writes, -1, 100, eventual(true)).passed());
    EXPECT_EQ(read(writes, -1, 100, eventual(true)).reads_never_right, 1U);
    EXPECT_EQ(read(writes, -1, 100, exact(true)).wrong_reads, 1U);
    // Nobody sent what this counts.
    const AuditResult wrong = read(writes, 1'000'001, 100, eventual(true));
    EXPECT_EQ(wrong.wrong_reads, 1U);
    EXPECT_FALSE(wrong.passed());
    EXPECT_THAT(wrong.examples, Contains(HasSubstr("never right; then it had 0 to 0")));
    AnswerRules drifts = eventual(true);
    drifts.may_be_wrong = true;
    EXPECT_TRUE(read(writes, 1'000'001, 100, drifts).passed());
}

TEST(ReadChecker, AWriteWithoutAnAnswerMayComeAtAnyTimeOrNever) {
    const std::vector<Attempt> writes = {unanswered(add(1, 10, 20)), add(1, 30, 40)};
    for (const std::int64_t number : {1, 2}) {
        EXPECT_TRUE(read(writes, number, 1000, exact(true)).passed()) << number;
    }
    EXPECT_FALSE(read(writes, 0, 1000, exact(true)).passed());
    EXPECT_FALSE(read(writes, 3, 1000, exact(true)).passed());
    // It may have come between two reads.
    EXPECT_TRUE(reads(writes, {{1, 100, 110, false}, {2, 120, 130, false}}, exact(true)).passed());
    const std::vector<Attempt> votes = {vote(1, 1, 10, 20), unanswered(vote(1, 0, 30, 40)),
                                        vote(2, 1, 50, 60)};
    for (const std::int64_t number : {1, 2}) {
        EXPECT_TRUE(read(votes, number, 1000, exact(false)).passed()) << number;
    }
}

TEST(ReadChecker, AVoteThatIsCastAgainCountsOnce) {
    const std::vector<Attempt> votes = {vote(1, 1, 10, 20), vote(1, 1, 30, 40), vote(2, 1, 50, 60)};
    EXPECT_TRUE(read(votes, 2, 100, exact(false)).passed());
    EXPECT_FALSE(read(votes, 3, 100, exact(false)).passed());
    EXPECT_EQ(read(votes, 3, 100, eventual(false)).wrong_reads, 1U) << "two users, three votes";
    // What the second cast did not change is no version that a read could lack.
    EXPECT_EQ(read(votes, 1, 100, eventual(false)).versions_behind.max(), 1);
}

TEST(ReadChecker, OfTwoCastsAtOnceEitherMayBeTheLast) {
    std::vector<Attempt> votes = {vote(1, 1, 10, 30), vote(1, 0, 20, 40)};
    for (const std::int64_t number : {0, 1}) {
        EXPECT_TRUE(read(votes, number, 100, exact(false)).passed()) << number;
    }
    // One that comes after both of them decides.
    votes.push_back(vote(1, 0, 50, 60));
    EXPECT_TRUE(read(votes, 0, 100, exact(false)).passed());
    const AuditResult stale = read(votes, 1, 100, exact(false));
    EXPECT_EQ(stale.stale_reads, 1U);
    EXPECT_EQ(stale.staleness_ns.max(), 40);
}

TEST(ReadChecker, ACountThatIsMovedAndMovedBackIsFound) {
    const std::vector<Attempt> writes = {add(1, 10, 20), add(1, 30, 40), add(1, 50, 60)};
    const AuditResult result = reads(
        writes, {{1, 25, 26, false}, {1'000'002, 45, 46, false}, {3, 65, 66, false}}, exact(true));
    EXPECT_EQ(result.wrong_reads, 1U);
    EXPECT_EQ(result.stale_reads, 0U);
}

TEST(ReadPromise, EveryStrategyThatTellsACountSaysWhatItsReadsAre) {
    std::vector<std::string> exact_ones;
    for (const Strategy& strategy : all_strategies()) {
        const ReadPromise promise = strategy.reads;
        const bool counts =
            strategy.workload == WorkloadKind::votes || strategy.workload == WorkloadKind::counters;
        EXPECT_EQ(promise.kind != ReadPromise::Kind::none, counts) << strategy.name;
        if (promise.kind == ReadPromise::Kind::exact) exact_ones.push_back(strategy.name);
    }
    EXPECT_THAT(exact_ones, testing::UnorderedElementsAre(
                                "naive", "slotted", "batched", "batched/async", "insert_only",
                                "memory", "redis", "memory/ttl", "redis/ttl", "slots/sticky",
                                "slots/random", "slots/adaptive"));
    EXPECT_EQ(find_strategy("redis/cached").value().reads.str(), "at most 30 s stale");
    EXPECT_EQ(find_strategy("redis/write_behind").value().reads.str(), "exact in the end");
}

CastCall told(const Attempt& attempt, std::int64_t previous) {
    const std::int64_t now = attempt.value;
    return {attempt, true, now != previous, now != 0, previous, now};
}
CastCall silent(const Attempt& attempt) { return {attempt, false, false, false, 0, 0}; }

AuditResult casts(std::vector<CastCall> calls) {
    AuditResult result;
    check_casts(calls, exact(false), result);
    return result;
}

TEST(CastChecker, EachCastFollowsOneBeforeIt) {
    EXPECT_TRUE(casts({told(vote(1, 1, 10, 20), 0), told(vote(1, 0, 30, 40), 1),
                       told(vote(1, 0, 50, 60), 0)})
                    .passed());
    EXPECT_EQ(casts({told(vote(1, 1, 10, 20), 1)}).wrong_casts, 1U) << "there was no vote before";
    EXPECT_EQ(casts({told(vote(1, 1, 10, 20), 0), told(vote(1, 0, 30, 40), 0)}).wrong_casts, 1U);
    EXPECT_EQ(casts({told(vote(1, 1, 10, 20), 0), told(vote(1, 0, 30, 40), 1),
                     told(vote(1, 1, 50, 60), 1)})
                  .wrong_casts,
              1U)
        << "the vote in between was replaced";
}

TEST(CastChecker, CastsAtOnceComeInOneOrderAndNotInTwo) {
    const Attempt first = vote(1, 1, 10, 30);
    const Attempt second = vote(1, 0, 20, 40);
    EXPECT_TRUE(casts({told(first, 0), told(second, 1)}).passed());
    EXPECT_TRUE(casts({told(second, 0), told(first, 0)}).passed());
    const Attempt again = vote(1, 1, 20, 40);
    EXPECT_TRUE(casts({told(first, 0), told(again, 1)}).passed());
    const AuditResult both = casts({told(first, 0), told(again, 0)});
    EXPECT_EQ(both.wrong_casts, 1U) << "one of two equal ones changed nothing";
    EXPECT_THAT(both.examples, Contains(HasSubstr("1 cannot have changed the vote as told")));
    EXPECT_EQ(casts({told(first, 1), told(again, 1)}).wrong_casts, 1U) << "one of them changed it";
}

TEST(CastChecker, OneWithoutAnAnswerMayStandBetweenAnyTwo) {
    EXPECT_TRUE(casts({told(vote(1, 1, 10, 20), 0), silent(unanswered(vote(1, 0, 30, 40))),
                       told(vote(1, 1, 50, 60), 0), told(vote(1, 1, 70, 80), 1)})
                    .passed());
    EXPECT_TRUE(casts({told(vote(1, 1, 10, 20), 0), silent(unanswered(vote(1, 0, 30, 40))),
                       told(vote(1, 1, 50, 60), 1), told(vote(1, 1, 70, 80), 0)})
                    .passed());
}

TEST(CastChecker, NoMomentHasMoreThanOneVoteOfAUser) {
    // Two votes at once and then two un-votes at once, all told that they changed it: together they come
    // to nothing, and each of them can follow another one.
    const std::vector<CastCall> twice = {told(vote(1, 1, 10, 30), 0), told(vote(1, 1, 20, 40), 0),
                                         told(vote(1, 0, 50, 70), 1), told(vote(1, 0, 60, 80), 1)};
    const AuditResult found = casts(twice);
    EXPECT_EQ(found.wrong_casts, 1U);
    EXPECT_THAT(found.examples, Contains(HasSubstr("1 cannot have changed the vote as told")));
    // An un-vote under way at that moment, told or not, may explain it; one that began later does not.
    for (const bool answered : {true, false}) {
        const auto with = [&](std::int64_t sent) {
            const Attempt taken = vote(1, 0, sent, sent + 50);
            std::vector<CastCall> calls = {twice[0], twice[1]};
            calls.push_back(answered ? told(taken, 1) : silent(unanswered(taken)));
            return casts(calls).passed();
        };
        EXPECT_TRUE(with(5));
        EXPECT_TRUE(with(40));
        EXPECT_FALSE(with(41));
    }
    EXPECT_TRUE(casts({twice[0], twice[1], silent(vote(1, 0, 15, 16))}).passed())
        << "it is pending";
}

TEST(CastChecker, NoVoteIsTakenBackMoreOftenThanItWasSet) {
    const std::vector<CastCall> calls = {told(vote(1, 1, 10, 30), 0), told(vote(1, 0, 15, 40), 1),
                                         told(vote(1, 0, 20, 50), 1), told(vote(1, 1, 60, 70), 0),
                                         silent(unanswered(vote(1, 0, 90, 99)))};
    EXPECT_EQ(casts(calls).wrong_casts, 1U);
    std::vector<CastCall> sooner = calls;
    sooner.push_back(silent(unanswered(vote(1, 1, 45, 46))));
    EXPECT_TRUE(casts(sooner).passed()) << "set by one without an answer";
}

TEST(CastChecker, AnAnswerAgreesWithItself) {
    CastCall cast = told(vote(1, 1, 10, 20), 0);
    cast.changed = false;
    const AuditResult result = casts({cast});
    EXPECT_EQ(result.wrong_casts, 1U);
    EXPECT_THAT(result.examples, Contains(HasSubstr("does not agree with itself")));
    cast = told(vote(1, 1, 10, 20), 0);
    cast.counted = false;
    EXPECT_EQ(casts({cast}).wrong_casts, 1U);
    cast = told(vote(1, 1, 10, 20), 0);
    cast.now = 0;
    EXPECT_EQ(casts({cast}).wrong_casts, 1U);
}

/// A call of a history that really happened: it took effect at `at`.
struct Happened {
    Attempt attempt;
    bool is_read;
    bool applied;
    std::int64_t at;
};

/// Calls of three users that overlap at random; of ten writes one has no answer, and comes late or never.
std::vector<Happened> random_history(Random& random, bool adds) {
    std::vector<Happened> calls;
    for (int i = 0; i < 40; ++i) {
        const auto sent = static_cast<std::int64_t>(random.below(200));
        const auto length = static_cast<std::int64_t>(random.below(40));
        const auto user = static_cast<std::int64_t>(random.below(3));
        const std::int64_t value = random.below(2) == 0 ? (adds ? -1 : 0) : 1;
        Happened call{vote(user, value, sent, sent + length), random.below(3) == 0, true,
                      sent + static_cast<std::int64_t>(random.below(40)) % (length + 1)};
        if (!call.is_read && random.below(10) == 0) {
            call.attempt.status = Status::unknown;
            call.applied = random.below(2) == 0;
            call.at += static_cast<std::int64_t>(random.below(100));
        }
        calls.push_back(call);
    }
    std::stable_sort(calls.begin(), calls.end(),
                     [](const Happened& a, const Happened& b) { return a.at < b.at; });
    return calls;
}

TEST(ReadChecker, AReadAfterAnotherTellsNoLessIfNothingWasTakenAway) {
    // Under way the whole time: each number alone is right at any moment.
    for (const bool adds : {false, true}) {
        const std::vector<Attempt> writes = {adds ? add(1, 10, 100) : vote(1, 1, 10, 100)};
        const std::vector<Read> back = {{1, 20, 25, false}, {0, 30, 35, false}, {0, 40, 45, false}};
        const AuditResult found = reads(writes, back, exact(adds));
        EXPECT_EQ(found.reads_went_back, 1U) << "it went back once, and stayed";
        EXPECT_EQ(found.backward_reads, 1U);
        EXPECT_FALSE(found.passed());
        EXPECT_EQ(found.told_wrong(), 1U);
        EXPECT_THAT(found.examples, Contains(HasSubstr("went back: item 7 was said to have 0")));
        // Only counted where nobody promised more.
        const AuditResult told = reads(writes, back, eventual(adds));
        EXPECT_EQ(told.reads_went_back, 1U);
        EXPECT_TRUE(told.passed());
        EXPECT_TRUE(reads(writes, {{0, 20, 25, false}, {1, 30, 35, false}}, exact(adds)).passed());
        EXPECT_TRUE(reads(writes, {{1, 20, 30, false}, {0, 30, 35, false}}, exact(adds)).passed())
            << "they overlap";
    }
}

TEST(ReadChecker, WhatWasTakenAwayExplainsALowerNumber) {
    const std::vector<Read> back = {{2, 20, 25, false}, {1, 30, 35, false}};
    const auto with = [&](const Attempt& taken) {
        return reads({vote(1, 1, 1, 5), vote(2, 1, 10, 100), taken}, back, exact(false)).passed();
    };
    EXPECT_TRUE(with(vote(1, 0, 28, 33)));
    EXPECT_TRUE(with(vote(1, 0, 22, 90)));
    EXPECT_TRUE(with(vote(1, 0, 35, 90)));
    EXPECT_TRUE(with(unanswered(vote(1, 0, 8, 9))));
    EXPECT_FALSE(with(vote(1, 0, 36, 90))) << "sent after the second answer";
}

TEST(ReadChecker, AReadAfterAnotherTellsNoMoreThanWasAdded) {
    // One vote may be taken away the whole time, so that each number alone is right at any moment.
    for (const bool adds : {false, true}) {
        std::vector<Attempt> writes = {adds ? add(1, 1, 5) : vote(1, 1, 1, 5),
                                       adds ? add(-1, 10, 100) : vote(1, 0, 10, 100)};
        const std::vector<Read> ahead = {
            {0, 20, 25, false}, {1, 30, 35, false}, {1, 40, 45, false}};
        const AuditResult found = reads(writes, ahead, exact(adds));
        EXPECT_EQ(found.backward_reads, 1U) << "it ran ahead once, and stayed";
        EXPECT_EQ(found.told_wrong(), 1U);
        EXPECT_THAT(found.examples, Contains(HasSubstr("ran ahead: item 7 was said to have 1")));
        EXPECT_TRUE(reads(writes, ahead, eventual(adds)).passed());
        EXPECT_TRUE(reads(writes, {{0, 20, 30, false}, {1, 30, 35, false}}, exact(adds)).passed())
            << "they overlap";
        writes.push_back(adds ? add(1, 34, 90) : vote(2, 1, 34, 90));
        EXPECT_TRUE(reads(writes, ahead, exact(adds)).passed()) << "one was added meanwhile";
        writes.back().sent_ns = 36;
        EXPECT_FALSE(reads(writes, ahead, exact(adds)).passed()) << "sent after the second answer";
        writes.back() = unanswered(adds ? add(1, 2, 3) : vote(2, 1, 2, 3));
        EXPECT_TRUE(reads(writes, ahead, exact(adds)).passed()) << "it may have come meanwhile";
    }
}

TEST(ReadChecker, ACountThatIsMovedStepByStepMayHaveAnyOfTheSteps) {
    AnswerRules cached = eventual(false);
    cached.reads_within = std::chrono::seconds{30};
    const std::vector<Attempt> writes = {vote(1, 1, 10, 90), vote(1, 0, 20, 30)};
    EXPECT_EQ(read(writes, -1, 40, cached).wrong_reads, 1U);
    cached.step_by_step = true;
    EXPECT_TRUE(read(writes, -1, 40, cached).passed()) << "the vote's caller is held up";
    EXPECT_EQ(read(writes, -2, 40, cached).wrong_reads, 1U);
    EXPECT_EQ(read(writes, 2, 40, cached).wrong_reads, 1U);
    EXPECT_EQ(reads(writes, {{-1, 40, 41, true}}, cached).wrong_reads, 1U) << "it said exact";
}

TEST(ReadChecker, OnlyReadsThatPromiseToBeExactAreHeldAgainstEachOther) {
    AnswerRules cached = eventual(false);
    cached.reads_within = std::chrono::seconds{30};
    const std::vector<Attempt> writes = {vote(1, 1, 10, 100)};
    const auto told = [&](bool first, bool second) {
        return reads(writes, {{1, 20, 25, first}, {0, 30, 35, second}}, cached);
    };
    EXPECT_EQ(told(true, true).backward_reads, 1U);
    for (const auto& [first, second] : {std::pair{true, false}, {false, true}, {false, false}}) {
        EXPECT_TRUE(told(first, second).passed());
        EXPECT_EQ(told(first, second).reads_went_back, 1U);
    }
}

TEST(ReadChecker, ANumberThatWasNeverRightDoesNotMakeTheNextOnesGoBack) {
    const AuditResult found =
        reads({vote(1, 1, 10, 20)}, {{9, 30, 35, false}, {1, 40, 45, false}}, exact(false));
    EXPECT_EQ(found.wrong_reads, 1U);
    EXPECT_EQ(found.reads_went_back, 0U);
}

TEST(ReadChecker, NoHistoryThatHappenedIsWrong) {
    Random random(7);
    for (int round = 0; round < 2000; ++round) {
        const bool adds = round % 2 == 0;
        std::vector<Attempt> writes;
        std::vector<Read> asked;
        std::map<std::int64_t, std::vector<CastCall>> calls;
        std::map<std::int64_t, std::int64_t> votes;
        std::int64_t count = 0;
        for (const Happened& call : random_history(random, adds)) {
            const Attempt& attempt = call.attempt;
            if (call.is_read) {
                asked.push_back({count, attempt.sent_ns, attempt.done_ns, false});
                continue;
            }
            writes.push_back(attempt);
            std::int64_t& now = votes[attempt.user];
            const std::int64_t previous = now;
            if (call.applied) {
                count += adds ? attempt.value : attempt.value - previous;
                now = attempt.value;
            }
            const bool answered = attempt.status == Status::ok;
            calls[attempt.user].push_back(answered ? told(attempt, previous) : silent(attempt));
        }
        AuditResult result = reads(writes, asked, exact(adds));
        if (!adds) {
            for (auto& [user, of_user] : calls) check_casts(of_user, exact(false), result);
            EXPECT_GT(result.casts, 0U);
        }
        ASSERT_TRUE(result.passed()) << round << ": " << testing::PrintToString(result.examples);
        EXPECT_EQ(result.reads_stale() + result.reads_never_right + result.reads_went_back, 0U);
    }
}

TEST(CastChecker, ANumberThatADriverMadeUpIsOnlyWrong) {
    for (const std::int64_t wild : {INT64_MIN, INT64_MAX}) {
        EXPECT_EQ(read({add(-1, 10, 20)}, wild, 100, eventual(true)).wrong_reads, 1U);
        EXPECT_EQ(casts({told(vote(1, 1, 10, 20), wild)}).wrong_casts, 1U);
        EXPECT_EQ(wrong_answers(std::vector<AddAnswer>{{1, 1}, {1, wild}}, 2), 1U);
        EXPECT_GE(wrong_answers(std::vector<AddAnswer>{{1, 1}, {-1, wild}}, 0), 1U);
    }
}

TEST(CastChecker, NothingIsHeldAgainstCastsThatWereToldNothing) {
    const AuditResult result = casts({silent(vote(1, 1, 10, 20)), silent(vote(1, 0, 30, 40))});
    EXPECT_TRUE(result.passed());
    EXPECT_EQ(result.casts, 0U);
}

}  // namespace
}  // namespace hotcount::loadtest
