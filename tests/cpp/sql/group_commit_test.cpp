#include <array>
#include <future>
#include <hotcount/detail/sql/group_commit.hpp>
#include <thread>

#include "support/callers.hpp"
#include "support/number_writer.hpp"
#include "support/result_matchers.hpp"
#include "support/temporary_database.hpp"

namespace hotcount::sql {
namespace {

using namespace std::chrono_literals;
using hotcount::testing::failed_with;
using hotcount::testing::in_threads;
using hotcount::testing::Number;
using hotcount::testing::NumberWriter;
using hotcount::testing::query_integer;
using hotcount::testing::succeeded;
using hotcount::testing::TemporaryDatabase;

class GroupCommitTest : public ::testing::Test {
  protected:
    void SetUp() override {
        const Deadline deadline = Deadline::after(5s);
        const auto lease = database_->writer(deadline);
        ASSERT_TRUE(succeeded((*lease)->run_script("CREATE TABLE t (x)")));
    }
    GroupCommit make(GroupCommitOptions options = {}) {
        return GroupCommit{database_, writer_, options};
    }
    std::int64_t rows() { return query_integer(*database_, "SELECT COUNT(*) FROM t"); }
    static std::vector<std::shared_ptr<QueuedWrite>> numbers(
        std::initializer_list<std::int64_t> list) {
        std::vector<std::shared_ptr<QueuedWrite>> writes;
        for (const auto value : list) writes.push_back(std::make_shared<Number>(value));
        return writes;
    }

    TemporaryDatabase file_;
    std::shared_ptr<Database> database_ = file_.open();
    std::shared_ptr<NumberWriter> writer_ = std::make_shared<NumberWriter>();
};

TEST_F(GroupCommitTest, EveryConcurrentWriteIsThereWhenItsCallerIsAnswered) {
    GroupCommit group = make();
    std::atomic<int> acknowledged{0};
    in_threads(32, [&](int) {
        for (int i = 0; i < 50; ++i) {
            if (group.submit(std::make_shared<Number>(i), Deadline::after(20s)).ok()) {
                ++acknowledged;
            }
        }
    });
    EXPECT_EQ(acknowledged, 1600);
    EXPECT_EQ(rows(), 1600);
    EXPECT_EQ(group.stats().writes, 1600U);
    EXPECT_LT(group.stats().batches, 1600U) << "some shared a transaction";
}

TEST_F(GroupCommitTest, NoTransactionIsLargerThanMaxBatch) {
    GroupCommitOptions options;
    options.max_batch = 3;
    GroupCommit group = make(options);
    const auto results =
        group.submit_all(numbers({1, 2, 3, 4, 5, 6, 7, 8, 9, 10}), Deadline::after(5s));
    for (const auto& result : results) EXPECT_TRUE(succeeded(result));
    EXPECT_EQ(rows(), 10);
    EXPECT_EQ(writer_->largest, 3U);
    EXPECT_EQ(group.stats().batches, 4U);
}

TEST_F(GroupCommitTest, AWriteRefusedAloneLeavesTheOthersCommitted) {
    GroupCommit group = make();
    const auto results =
        group.submit_all(numbers({1, NumberWriter::kRefusedAlone, 3}), Deadline::after(5s));
    EXPECT_TRUE(succeeded(results[0]));
    EXPECT_TRUE(failed_with(results[1], ErrorCode::integrity, "refused alone"));
    EXPECT_TRUE(succeeded(results[2]));
    EXPECT_EQ(rows(), 2);
}

TEST_F(GroupCommitTest, AWriteThatSpoilsItsBatchFailsAloneInTheEnd) {
    GroupCommit group = make();
    const auto results = group.submit_all(
        numbers({1, 2, 3, NumberWriter::kSpoilsBatch, 5, 6, NumberWriter::kSpoilsBatch}),
        Deadline::after(5s));
    for (const std::size_t good : {0, 1, 2, 4, 5}) EXPECT_TRUE(succeeded(results[good])) << good;
    for (const std::size_t bad : {3, 6}) {
        EXPECT_TRUE(failed_with(results[bad], ErrorCode::overflow, "spoils")) << bad;
    }
    EXPECT_EQ(rows(), 5);
}

TEST_F(GroupCommitTest, AFailureOfTheWholeFailsAllAndAppliesNothing) {
    GroupCommit group = make();
    const auto results =
        group.submit_all(numbers({1, 2, NumberWriter::kBreaksBatch}), Deadline::after(5s));
    for (const auto& result : results) EXPECT_TRUE(failed_with(result, ErrorCode::database));
    EXPECT_EQ(rows(), 0);
    EXPECT_TRUE(succeeded(group.submit(std::make_shared<Number>(1), Deadline::after(5s))))
        << "and the next goes on";
}

TEST_F(GroupCommitTest, ACallerWhoseDeadlinePassesInTheQueueHasNothingApplied) {
    GroupCommit group = make();
    auto lock = std::make_unique<Result<Lease>>(database_->writer(Deadline::after(1s)));
    std::atomic<int> gave_up{0};
    const auto started = std::chrono::steady_clock::now();
    in_threads(8, [&](int) {
        const auto result = group.submit(std::make_shared<Number>(1), Deadline::after(100ms));
        if (failed_with(result, ErrorCode::deadline)) ++gave_up;
    });
    EXPECT_EQ(gave_up, 8);
    EXPECT_LE(std::chrono::steady_clock::now() - started, 300ms) << "100 ms, and 100 ms allowance";
    lock.reset();
    EXPECT_TRUE(succeeded(group.submit(std::make_shared<Number>(2), Deadline::after(5s))))
        << "the role of leader was not lost with them";
    EXPECT_EQ(rows(), 1);
}

TEST_F(GroupCommitTest, ACallerWhoseDeadlinePassesWhileItsGroupIsWrittenHasNothingApplied) {
    writer_->hold = true;
    GroupCommitOptions gather;
    gather.max_delay = 200ms;
    gather.max_batch = 2;
    GroupCommit pair = make(gather);
    std::promise<Result<void>> first;
    pair.submit_async(std::make_shared<Number>(3), Deadline::after(30s),
                      [&](Result<void> result) { first.set_value(std::move(result)); });
    EXPECT_TRUE(failed_with(pair.submit(std::make_shared<Number>(4), Deadline::after(300ms)),
                            ErrorCode::deadline, "before the commit; nothing was applied"));
    writer_->hold = false;
    EXPECT_TRUE(succeeded(first.get_future().get()));
    EXPECT_EQ(rows(), 1) << "what had been written of the other was rolled back";
}

TEST_F(GroupCommitTest, ThoseWhoStayAreWrittenWhenTheirLeaderLeaves) {
    GroupCommit group = make();
    auto lock = std::make_unique<Result<Lease>>(database_->writer(Deadline::after(1s)));
    std::thread leader([&] {
        EXPECT_TRUE(failed_with(group.submit(std::make_shared<Number>(1), Deadline::after(100ms)),
                                ErrorCode::deadline));
    });
    std::this_thread::sleep_for(20ms);
    std::vector<std::thread> staying;
    for (int i = 0; i < 8; ++i) {
        staying.emplace_back([&] {
            EXPECT_TRUE(succeeded(group.submit(std::make_shared<Number>(2), Deadline::after(10s))));
        });
    }
    leader.join();
    lock.reset();
    for (auto& thread : staying) thread.join();
    EXPECT_EQ(rows(), 8);
}

TEST_F(GroupCommitTest, ThoseWhoStayAreWrittenWhenTheNextLeaderLeavesBeforeItsTurn) {
    GroupCommit group = make();
    writer_->hold = true;
    std::thread writing([&] {
        EXPECT_TRUE(succeeded(group.submit(std::make_shared<Number>(1), Deadline::after(10s))));
    });
    while (writer_->largest == 0) std::this_thread::sleep_for(1ms);
    std::thread next([&] {
        EXPECT_TRUE(failed_with(group.submit(std::make_shared<Number>(2), Deadline::after(100ms)),
                                ErrorCode::deadline));
    });
    std::this_thread::sleep_for(20ms);
    std::thread one_of_many([&] {  // A member that leaves from the middle, too.
        EXPECT_TRUE(failed_with(group.submit(std::make_shared<Number>(3), Deadline::after(50ms)),
                                ErrorCode::deadline));
    });
    std::this_thread::sleep_for(20ms);
    std::thread staying([&] {
        for (const auto& result : group.submit_all(numbers({4, 5, 6}), Deadline::after(10s))) {
            EXPECT_TRUE(succeeded(result));
        }
    });
    next.join();
    one_of_many.join();
    writer_->hold = false;
    writing.join();
    staying.join();
    EXPECT_EQ(rows(), 4);
}

TEST_F(GroupCommitTest, AFullQueueRefusesAtOnce) {
    GroupCommitOptions options;
    options.max_queue = 2;
    GroupCommit group = make(options);
    auto lock = std::make_unique<Result<Lease>>(database_->writer(Deadline::after(1s)));
    std::array<std::promise<Result<void>>, 2> waiting;
    for (auto& each : waiting) {
        group.submit_async(std::make_shared<Number>(1), Deadline::after(30s),
                           [&each](Result<void> result) { each.set_value(std::move(result)); });
    }
    const auto refused = group.submit(std::make_shared<Number>(2), Deadline::after(30s));
    EXPECT_TRUE(failed_with(refused, ErrorCode::capacity, "2 writes wait"));
    lock.reset();
    for (auto& each : waiting) EXPECT_TRUE(succeeded(each.get_future().get()));
    EXPECT_EQ(rows(), 2);
}

TEST_F(GroupCommitTest, ALargeCallIsNotRefusedForItsSize) {
    GroupCommitOptions options;
    options.max_queue = 10;
    options.max_batch = 4;
    GroupCommit group = make(options);
    std::vector<std::shared_ptr<QueuedWrite>> writes;
    for (int i = 0; i < 100; ++i) writes.push_back(std::make_shared<Number>(i));
    for (const auto& result : group.submit_all(writes, Deadline::after(10s))) {
        EXPECT_TRUE(succeeded(result));
    }
    EXPECT_EQ(rows(), 100);
}

TEST_F(GroupCommitTest, WhatIsDoneBeforeCallersWakeIsDoneOnceForAllThatWereWritten) {
    GroupCommit group = make();
    const auto results =
        group.submit_all(numbers({1, NumberWriter::kRefusedAlone, 3, 4}), Deadline::after(20s));
    EXPECT_TRUE(succeeded(results[3]));
    EXPECT_EQ(writer_->announced, 3U);
    EXPECT_EQ(writer_->announced_batches, 1U);
    EXPECT_EQ(writer_->done_afterwards, 1U) << "by the caller that led";
}

TEST_F(GroupCommitTest, WhatIsDoneBeforeCallersWakeHoldsUpNeitherTheNextBatchNorADeadline) {
    GroupCommitOptions gather;
    gather.max_delay = 10s;
    gather.max_batch = 2;
    GroupCommit group = make(gather);
    writer_->hold_answers = true;
    std::thread leader([&] {
        EXPECT_TRUE(succeeded(group.submit(std::make_shared<Number>(1), Deadline::after(30s))));
    });
    // Perhaps before the leader, which leads it then: so both have time enough until the commit.
    std::thread follower([&] {
        EXPECT_TRUE(succeeded(group.submit(std::make_shared<Number>(2), Deadline::after(30s))));
    });
    while (writer_->announced < 2) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(rows(), 2);
    std::thread behind([&] {
        for (const auto& result : group.submit_all(numbers({3, 4}), Deadline::after(30s))) {
            EXPECT_TRUE(succeeded(result));
        }
    });
    while (writer_->announced < 4) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(rows(), 4);
    writer_->hold_answers = false;
    for (std::thread* each : {&leader, &follower, &behind}) each->join();
}

TEST_F(GroupCommitTest, ACallerWhoseDeadlinePassesAfterTheCommitIsToldThatItIsCommitted) {
    GroupCommitOptions gather;
    gather.max_delay = 10s;
    gather.max_batch = 2;
    GroupCommit group = make(gather);
    writer_->hold_answers = true;
    std::thread leader([&] {
        EXPECT_TRUE(succeeded(group.submit(std::make_shared<Number>(1), Deadline::after(30s))));
    });
    while (group.stats().waiting == 0) std::this_thread::sleep_for(1ms);
    EXPECT_TRUE(succeeded(group.submit(std::make_shared<Number>(2), Deadline::after(1s))));
    EXPECT_TRUE(writer_->hold_answers);
    EXPECT_EQ(rows(), 2);
    writer_->hold_answers = false;
    leader.join();
}

TEST_F(GroupCommitTest, SingleAndBulkCallersAndTimeoutsMixWithoutLoss) {
    GroupCommitOptions options;
    options.max_batch = 8;
    GroupCommit group = make(options);
    std::atomic<std::int64_t> acknowledged{0};
    std::atomic<std::int64_t> unknown{0};
    in_threads(12, [&](int t) {
        const Duration patience = t % 3 == 0 ? 500us : 20s;  // Some are in a hurry.
        for (int i = 0; i < 40; ++i) {
            const auto results =
                t % 2 == 0 ? group.submit_all(numbers({1, 2, 3}), Deadline::after(patience))
                           : std::vector{group.submit(std::make_shared<Number>(1),
                                                      Deadline::after(patience))};
            for (const auto& result : results) {
                if (result.ok()) {
                    ++acknowledged;
                } else if (result.error().code == ErrorCode::outcome_unknown) {
                    ++unknown;
                } else {
                    EXPECT_TRUE(failed_with(result, ErrorCode::deadline));
                }
            }
        }
    });
    EXPECT_GE(rows(), acknowledged);
    EXPECT_LE(rows(), acknowledged + unknown);
}

}  // namespace
}  // namespace hotcount::sql
