// What members of a group are told when the database or their leader lets them down.
#include <future>
#include <hotcount/detail/sql/group_commit.hpp>
#include <thread>

#include "support/number_writer.hpp"
#include "support/result_matchers.hpp"
#include "support/scripted_database.hpp"

namespace hotcount::sql {
namespace {

using namespace std::chrono_literals;
using hotcount::testing::failed_with;
using hotcount::testing::Number;
using hotcount::testing::NumberWriter;
using hotcount::testing::ScriptedDatabase;
using hotcount::testing::Step;
using hotcount::testing::succeeded;

using Rows = std::vector<std::int64_t>;

class GroupCommitFaults : public ::testing::Test {
  protected:
    std::future<Result<void>> begin(std::int64_t value, Duration timeout = 10s) {
        auto promise = std::make_shared<std::promise<Result<void>>>();
        auto future = promise->get_future();
        group_.submit_async(std::make_shared<Number>(value), Deadline::after(timeout),
                            [promise](Result<void> result) { promise->set_value(result); });
        return future;
    }
    Result<void> submit(std::int64_t value, Duration timeout = 10s) {
        return group_.submit(std::make_shared<Number>(value), Deadline::after(timeout));
    }
    std::vector<Result<void>> submit_all(std::initializer_list<std::int64_t> values) {
        std::vector<std::shared_ptr<QueuedWrite>> writes;
        for (const auto value : values) writes.push_back(std::make_shared<Number>(value));
        return group_.submit_all(writes, Deadline::after(10s));
    }
    /// A blocked caller that leads, held where its transaction begins: who comes now joins it.
    std::thread lead(std::int64_t value, Duration timeout, Result<void>& result) {
        database_->hold(Step::begin);
        std::thread leader([this, value, timeout, &result] { result = submit(value, timeout); });
        database_->await_held();
        return leader;
    }
    static Error deadlock() {
        return make_error(ErrorCode::deadline, "deadlock detected", "40P01",
                          SqlCondition::transaction_conflict);
    }
    static Error lost() { return make_error(ErrorCode::unavailable, "connection lost"); }

    std::shared_ptr<ScriptedDatabase> database_ = std::make_shared<ScriptedDatabase>();
    std::shared_ptr<NumberWriter> writer_ = std::make_shared<NumberWriter>();
    GroupCommit group_{database_, writer_, {}};
};

TEST_F(GroupCommitFaults, ADeadlockIsWrittenAgainAndNobodyHearsOfIt) {
    database_->fail_next(Step::write, deadlock());
    database_->fail_next(Step::write, deadlock());
    database_->fail_next(Step::commit, deadlock());
    for (const auto& result : submit_all({1, 2, 3})) EXPECT_TRUE(succeeded(result));
    EXPECT_EQ(database_->rows(), (Rows{1, 2, 3}));
    EXPECT_EQ(database_->stats().retries, 3U);
}

TEST_F(GroupCommitFaults, ADeadlockThatDoesNotEndIsADeadlineErrorInTheEnd) {
    for (int i = 0; i < 1000; ++i) database_->fail_next(Step::write, deadlock());
    const Result<void> late = submit(1, 100ms);
    const auto attempts = std::to_string(database_->stats().retries + 1);
    EXPECT_TRUE(failed_with(late, ErrorCode::deadline,
                            "passed after " + attempts + " attempts; nothing was applied"));
    EXPECT_EQ(database_->rows(), Rows{});
}

TEST_F(GroupCommitFaults, AConnectionLostBeforeTheCommitIsReplacedOnce) {
    for (const Step step : {Step::begin, Step::write, Step::commit}) {
        database_->fail_next(step, lost());
        const int before = database_->connections();
        EXPECT_TRUE(succeeded(submit(1)));
        EXPECT_EQ(database_->connections(), before + (before == 0 ? 2 : 1));
    }
    EXPECT_EQ(database_->rows(), (Rows{1, 1, 1}));
}

TEST_F(GroupCommitFaults, AConnectionLostTwiceIsTold) {
    database_->fail_next(Step::write, lost());
    database_->fail_next(Step::write, lost());
    for (const auto& result : submit_all({1, 2})) {
        EXPECT_TRUE(failed_with(result, ErrorCode::unavailable));
    }
    EXPECT_TRUE(succeeded(submit(3)));
    EXPECT_EQ(database_->rows(), (Rows{3}));
}

TEST_F(GroupCommitFaults, ACommitWithoutAnAnswerIsUnknownToAllAndNotWrittenAgain) {
    Result<void> leads;
    std::thread leader = lead(1, 10s, leads);
    auto follows = begin(2);
    database_->fail_next(Step::commit, make_error(ErrorCode::outcome_unknown, "no answer"),
                         /*applied=*/true);
    database_->release();
    leader.join();
    EXPECT_TRUE(failed_with(leads, ErrorCode::outcome_unknown));
    EXPECT_TRUE(failed_with(follows.get(), ErrorCode::outcome_unknown));
    EXPECT_EQ(database_->rows(), (Rows{1, 2})) << "once";
}

TEST_F(GroupCommitFaults, ABadWriteStillFailsAloneAfterADeadlock) {
    database_->fail_next(Step::write, deadlock());
    const auto results = submit_all({1, NumberWriter::kSpoilsBatch, 3, 4});
    EXPECT_TRUE(failed_with(results[1], ErrorCode::overflow));
    for (const std::size_t good : {0, 2, 3}) EXPECT_TRUE(succeeded(results[good])) << good;
    EXPECT_EQ(database_->rows(), (Rows{1, 3, 4}));
}

TEST_F(GroupCommitFaults, ARefusalThatOneWriteMayHaveCausedIsLookedIntoByHalves) {
    for (const ErrorCode code : {ErrorCode::database, ErrorCode::permission_denied}) {
        // Once: each half is written then.
        database_->fail_next(Step::write, make_error(code, "refused"));
        for (const auto& result : submit_all({1, 2, 3, 4})) EXPECT_TRUE(succeeded(result));
    }
    EXPECT_EQ(database_->rows().size(), 8U);
}

TEST_F(GroupCommitFaults, ARefusalThatConcernsAllFailsAllAtOnce) {
    for (const SqlCondition of_all :
         {SqlCondition::of_all_writes, SqlCondition::undefined_table, SqlCondition::read_only}) {
        database_->fail_next(Step::write, make_error(ErrorCode::database, "refused", "", of_all));
        for (const auto& result : submit_all({1, 2, 3, 4})) {
            EXPECT_TRUE(failed_with(result, ErrorCode::database));
        }
    }
    EXPECT_EQ(database_->rows(), Rows{});
}

TEST_F(GroupCommitFaults, TheLeadersDeadlineIsNotItsFollowers) {
    // A row lock that somebody else holds: met where the group is written.
    Result<void> leads;
    std::thread leader = lead(1, 150ms, leads);
    std::vector<std::future<Result<void>>> following;
    for (std::int64_t value = 2; value < 6; ++value) following.push_back(begin(value));
    database_->hold(Step::write);
    leader.join();
    EXPECT_TRUE(failed_with(leads, ErrorCode::deadline));
    auto late = begin(6);
    database_->release();
    for (auto& follows : following) EXPECT_TRUE(succeeded(follows.get()));
    EXPECT_TRUE(succeeded(late.get()));
    EXPECT_EQ(database_->rows(), (Rows{2, 3, 4, 5, 6})) << "in the order in which they came";
}

TEST_F(GroupCommitFaults, BlockedFollowersAreLedByOneOfThemWhereTheirLeaderFails) {
    Result<void> leads;
    std::thread leader = lead(1, 200ms, leads);
    std::vector<std::thread> following;
    std::atomic<int> written{0};
    for (int i = 0; i < 8; ++i) {
        following.emplace_back([&] {
            if (submit(2).ok()) ++written;
        });
    }
    database_->hold(Step::write);
    leader.join();
    EXPECT_TRUE(failed_with(leads, ErrorCode::deadline));
    database_->release();
    for (auto& thread : following) thread.join();
    EXPECT_EQ(written, 8);
    EXPECT_EQ(database_->rows(), Rows(8, 2));
}

TEST_F(GroupCommitFaults, WhoseDeadlinePassesBeforeTheCommitHasNothingApplied) {
    Result<void> leads;
    std::thread leader = lead(1, 10s, leads);
    auto hurried = begin(2, 100ms);
    auto patient = begin(3);
    database_->hold(Step::write);
    EXPECT_TRUE(failed_with(hurried.get(), ErrorCode::deadline, "nothing was applied"));
    database_->release();
    leader.join();
    EXPECT_TRUE(succeeded(leads));
    EXPECT_TRUE(succeeded(patient.get()));
    EXPECT_EQ(database_->rows(), (Rows{1, 3}));
}

TEST_F(GroupCommitFaults, AGroupIsWrittenAgainForLeaversOnlyOnce) {
    Result<void> leads;
    std::thread leader = lead(1, 10s, leads);
    auto first = begin(2, 100ms);
    auto second = begin(3, 600ms);
    database_->hold(Step::write);
    EXPECT_TRUE(failed_with(first.get(), ErrorCode::deadline));
    // The group goes on to its commit, finds that one has left, and begins again: held there.
    database_->hold(Step::begin);
    database_->await_held();
    database_->hold(Step::write);
    database_->await_held();
    EXPECT_TRUE(failed_with(second.get(), ErrorCode::outcome_unknown)) << "no third time";
    database_->release();
    leader.join();
    EXPECT_TRUE(succeeded(leads));
    EXPECT_EQ(database_->rows(), (Rows{1, 3})) << "as it turned out";
}

TEST_F(GroupCommitFaults, WhoLeavesWhileTheOtherHalfIsWrittenIsNotWritten) {
    Result<void> leads;
    std::thread leader = lead(1, 30s, leads);
    auto second = begin(2);
    auto third = begin(3);
    auto hurried = begin(4, 500ms);
    database_->fail_next(Step::write, make_error(ErrorCode::integrity, "one of them", "23514"));
    database_->hold(Step::write);
    database_->await_held();
    // The first half begins, and is held there.
    database_->hold(Step::begin);
    database_->await_held();
    EXPECT_TRUE(failed_with(hurried.get(), ErrorCode::deadline, "nothing was applied"));
    database_->release();
    leader.join();
    EXPECT_TRUE(succeeded(leads));
    EXPECT_TRUE(succeeded(second.get()));
    EXPECT_TRUE(succeeded(third.get()));
    EXPECT_EQ(database_->rows(), (Rows{1, 2, 3}));
}

TEST_F(GroupCommitFaults, WhoseDeadlinePassesInMidCommitDoesNotKnow) {
    Result<void> leads;
    std::thread leader = lead(1, 10s, leads);
    auto hurried = begin(2, 150ms);
    database_->hold(Step::commit);
    EXPECT_TRUE(failed_with(hurried.get(), ErrorCode::outcome_unknown, "may or may not"));
    EXPECT_EQ(writer_->announced, 1U) << "told to the writer too";
    database_->release();
    leader.join();
    EXPECT_TRUE(succeeded(leads));
    EXPECT_EQ(database_->rows(), (Rows{1, 2})) << "as it turned out";
}

TEST_F(GroupCommitFaults, ABlockedFollowerInMidCommitDoesNotKnowEither) {
    Result<void> leads;
    std::thread leader = lead(1, 10s, leads);
    std::promise<Result<void>> hurried;
    std::thread follower([&] { hurried.set_value(submit(2, 1s)); });
    auto patient = begin(3);  // Behind it or before it; both are in the group by the commit.
    std::this_thread::sleep_for(50ms);
    database_->hold(Step::commit);
    EXPECT_TRUE(failed_with(hurried.get_future().get(), ErrorCode::outcome_unknown));
    database_->release();
    leader.join();
    follower.join();
    EXPECT_TRUE(succeeded(leads));
    EXPECT_TRUE(succeeded(patient.get()));
    EXPECT_EQ(database_->rows().size(), 3U);
}

TEST_F(GroupCommitFaults, ALeaderWhoseDeadlinePassesInMidCommitIsTheOnlyOneWhoDoesNotKnow) {
    Result<void> leads;
    std::thread leader = lead(1, 150ms, leads);
    std::vector<std::future<Result<void>>> following;
    for (std::int64_t value = 2; value < 6; ++value) following.push_back(begin(value));
    database_->hold(Step::commit);
    leader.join();
    EXPECT_TRUE(failed_with(leads, ErrorCode::outcome_unknown, "may or may not"));
    auto late = begin(6);
    database_->release();
    for (auto& follows : following) EXPECT_TRUE(succeeded(follows.get()));
    EXPECT_TRUE(succeeded(late.get()));
    EXPECT_EQ(database_->rows(), (Rows{1, 2, 3, 4, 5, 6})) << "once, and as it turned out";
    EXPECT_EQ(database_->connections(), 1) << "which is of use again";
}

TEST_F(GroupCommitFaults, ACommitThatIsRefusedAfterItsLeaderLeftIsWrittenAgain) {
    Result<void> leads;
    std::thread leader = lead(1, 150ms, leads);
    auto first = begin(2);
    auto second = begin(3);
    database_->hold(Step::commit);
    leader.join();
    EXPECT_TRUE(failed_with(leads, ErrorCode::outcome_unknown));
    database_->fail_next(Step::commit, deadlock());
    database_->release();
    EXPECT_TRUE(succeeded(first.get()));
    EXPECT_TRUE(succeeded(second.get()));
    EXPECT_EQ(database_->rows(), (Rows{1, 2, 3}));
}

TEST_F(GroupCommitFaults, ACommitThatIsNeverAnsweredIsUnknownToEachAtItsOwnDeadline) {
    Result<void> leads;
    std::thread leader = lead(1, 100ms, leads);
    auto follows = begin(2, 300ms);
    database_->hold(Step::commit);
    leader.join();
    EXPECT_TRUE(failed_with(leads, ErrorCode::outcome_unknown));
    EXPECT_TRUE(failed_with(follows.get(), ErrorCode::outcome_unknown));
    auto next = begin(3);
    database_->await_held(3);  // Its own commit: nobody waits for the first one's any more.
    database_->release();
    EXPECT_TRUE(succeeded(next.get())) << "over another connection";
    EXPECT_EQ(database_->rows(), (Rows{3}));
}

}  // namespace
}  // namespace hotcount::sql
