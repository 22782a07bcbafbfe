// Calls of many writes, waited for and not: they are handed in a portion at a time.
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

constexpr std::size_t kMany = 100'000;

/// What came of a call of many writes.
struct Told {
    std::atomic<std::size_t> made{0};
    std::vector<Result<void>> results{};
};

class GroupCommitBulk : public ::testing::TestWithParam<bool> {
  protected:
    static constexpr std::size_t kMaxBatch = 80;

    void SetUp() override {
        options_.max_batch = kMaxBatch;
        group_ = std::make_unique<GroupCommit>(database_, writer_, options_);
    }
    std::future<std::shared_ptr<Told>> begin_many(std::size_t count, Duration timeout) {
        auto told = std::make_shared<Told>();
        told->results.resize(count);
        const ManyWrites writes{count,
                                [told](std::size_t i) {
                                    ++told->made;
                                    return std::make_shared<Number>(static_cast<std::int64_t>(i));
                                },
                                [told](std::size_t i, const QueuedWrite*,
                                       const Result<void>& result) { told->results[i] = result; }};
        const Deadline deadline = Deadline::after(timeout);
        if (GetParam()) {
            return std::async(std::launch::async, [this, writes, told, deadline] {
                group_->submit_all(writes, deadline);
                return told;
            });
        }
        auto promise = std::make_shared<std::promise<std::shared_ptr<Told>>>();
        group_->submit_all_async(writes, deadline, [promise, told] { promise->set_value(told); });
        return promise->get_future();
    }
    std::future<Result<void>> begin(std::int64_t value) {
        auto promise = std::make_shared<std::promise<Result<void>>>();
        group_->submit_async(std::make_shared<Number>(value), Deadline::after(30s),
                             [promise](Result<void> result) { promise->set_value(result); });
        return promise->get_future();
    }

    GroupCommitOptions options_{};
    std::shared_ptr<ScriptedDatabase> database_ = std::make_shared<ScriptedDatabase>();
    std::shared_ptr<NumberWriter> writer_ = std::make_shared<NumberWriter>();
    std::unique_ptr<GroupCommit> group_{};
};
INSTANTIATE_TEST_SUITE_P(Callers, GroupCommitBulk, ::testing::Values(true, false),
                         [](const auto& caller) { return caller.param ? "waits" : "async"; });

TEST_P(GroupCommitBulk, WhatTheDeadlineLeavesUnsentWasNeverQueued) {
    database_->hold(Step::write);
    const auto started = std::chrono::steady_clock::now();
    auto call = begin_many(kMany, 200ms);
    database_->await_held();
    EXPECT_LE(group_->stats().waiting, kMaxBatch);
    const auto told = call.get();
    EXPECT_LE(std::chrono::steady_clock::now() - started, 300ms) << "100 ms, and 100 ms late";
    EXPECT_LE(told->made, 2 * kMaxBatch);
    for (const auto& result : told->results) {
        ASSERT_TRUE(failed_with(result, ErrorCode::deadline));
    }
    EXPECT_EQ(&told->results[kMany - 1].error(), &told->results[kMany / 2].error())
        << "those that were not sent share an error";
    database_->release();
    EXPECT_TRUE(succeeded(begin(-9).get()));
    EXPECT_EQ(database_->rows(), (std::vector<std::int64_t>{-9}));
}

TEST_P(GroupCommitBulk, OnlyThePortionWhoseCommitWasSentIsInDoubt) {
    database_->hold(Step::commit);
    auto call = begin_many(1000, 200ms);
    const auto told = call.get();
    database_->release();
    for (std::size_t i = 0; i < told->results.size(); ++i) {
        const auto code = i < kMaxBatch ? ErrorCode::outcome_unknown : ErrorCode::deadline;
        ASSERT_TRUE(failed_with(told->results[i], code)) << i;
    }
}

TEST_P(GroupCommitBulk, ASingleWriteStandsBehindOnePortion) {
    database_->hold(Step::commit);
    auto call = begin_many(1000, 30s);
    database_->await_held();
    auto single = begin(-9);
    database_->release();
    EXPECT_TRUE(succeeded(single.get()));
    const auto call_told = call.get();
    for (const auto& result : call_told->results) ASSERT_TRUE(succeeded(result));
    const auto rows = database_->rows();
    ASSERT_EQ(rows.size(), 1001U);
    const auto place = std::find(rows.begin(), rows.end(), -9) - rows.begin();
    EXPECT_LE(place, static_cast<std::ptrdiff_t>(kMaxBatch + 16));
    std::vector<std::int64_t> others = rows;
    std::erase(others, -9);
    EXPECT_TRUE(std::is_sorted(others.begin(), others.end()));
    EXPECT_GT(group_->stats().batches, 1000 / kMaxBatch + 10) << "in smaller portions since then";
}

TEST_P(GroupCommitBulk, ACallOfManyWaitsForRoomAndASingleOneIsRefused) {
    options_.max_queue = 10;
    group_ = std::make_unique<GroupCommit>(database_, writer_, options_);
    database_->hold(Step::begin);
    std::vector<std::future<Result<void>>> full;
    for (int i = 0; i < 10; ++i) full.push_back(begin(-1000 - i));
    database_->await_held();
    EXPECT_TRUE(failed_with(begin(-9).get(), ErrorCode::capacity, "10 writes wait"));
    auto late = begin_many(3, 100ms);
    auto patient = begin_many(100, 30s);
    const auto late_told = late.get();
    for (const auto& result : late_told->results) {
        EXPECT_TRUE(failed_with(result, ErrorCode::deadline, "nothing was applied"));
    }
    database_->release();
    for (auto& each : full) EXPECT_TRUE(succeeded(each.get()));
    const auto patient_told = patient.get();
    for (const auto& result : patient_told->results) ASSERT_TRUE(succeeded(result));
    EXPECT_EQ(database_->rows().size(), 110U);
}

TEST_P(GroupCommitBulk, ManyCallsAtOnceAllPass) {
    options_.max_queue = 100;
    group_ = std::make_unique<GroupCommit>(database_, writer_, options_);
    std::vector<std::future<std::shared_ptr<Told>>> calls;
    for (int i = 0; i < 8; ++i) calls.push_back(begin_many(2000, 60s));
    for (auto& call : calls) {
        const auto call_told = call.get();
        for (const auto& result : call_told->results) ASSERT_TRUE(succeeded(result));
    }
    EXPECT_EQ(database_->rows().size(), 16'000U);
}

// Callers that wait are over before the queue is.
class GroupCommitBulkCompletions : public GroupCommitBulk {};
INSTANTIATE_TEST_SUITE_P(Callers, GroupCommitBulkCompletions, ::testing::Values(false));

TEST_P(GroupCommitBulkCompletions, TheEndOfTheQueueEndsACallThatWaitsForRoom) {
    options_.max_queue = 1;
    group_ = std::make_unique<GroupCommit>(database_, writer_, options_);
    database_->hold(Step::write);
    auto first = begin(1);
    database_->await_held();
    auto queued = begin(2);
    auto call = begin_many(2, 30s);
    std::thread ending([&] { group_.reset(); });
    const auto call_told = call.get();
    for (const auto& result : call_told->results) {
        EXPECT_TRUE(failed_with(result, ErrorCode::closed));
    }
    EXPECT_TRUE(failed_with(queued.get(), ErrorCode::closed));
    database_->release();
    ending.join();
    EXPECT_TRUE(succeeded(first.get()));
}

}  // namespace
}  // namespace hotcount::sql
