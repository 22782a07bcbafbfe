// Calls that do not wait: their threads, their deadlines, their order, and their end.
#include <future>
#include <hotcount/detail/sql/group_commit.hpp>
#include <set>
#include <thread>

#include "support/callers.hpp"
#include "support/number_writer.hpp"
#include "support/result_matchers.hpp"
#include "support/scripted_database.hpp"
#include "support/temporary_database.hpp"

namespace hotcount::sql {
namespace {

using namespace std::chrono_literals;
using hotcount::testing::failed_with;
using hotcount::testing::in_threads;
using hotcount::testing::Number;
using hotcount::testing::NumberWriter;
using hotcount::testing::query_integer;
using hotcount::testing::ScriptedDatabase;
using hotcount::testing::Step;
using hotcount::testing::succeeded;
using hotcount::testing::TemporaryDatabase;

class GroupCommitAsync : public ::testing::Test {
  protected:
    void SetUp() override {
        const auto lease = database_->writer(Deadline::after(5s));
        ASSERT_TRUE(succeeded((*lease)->run_script("CREATE TABLE t (x)")));
    }
    std::unique_ptr<GroupCommit> make(GroupCommitOptions options = {}) {
        return std::make_unique<GroupCommit>(database_, writer_, options);
    }
    std::int64_t rows() { return query_integer(*database_, "SELECT COUNT(*) FROM t"); }
    static std::future<Result<void>> begin(GroupCommit& group, std::int64_t value,
                                           Duration timeout = 10s) {
        auto promise = std::make_shared<std::promise<Result<void>>>();
        auto future = promise->get_future();
        group.submit_async(std::make_shared<Number>(value), Deadline::after(timeout),
                           [promise](Result<void> result) { promise->set_value(result); });
        return future;
    }

    TemporaryDatabase file_;
    std::shared_ptr<Database> database_ = file_.open();
    std::shared_ptr<NumberWriter> writer_ = std::make_shared<NumberWriter>();
};

// Keeps a number of calls in flight until enough have been answered.
struct ClosedLoop {
    GroupCommit& group;
    const int calls;
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
    std::atomic<int> failed{0};
    std::mutex mutex{};
    std::set<std::thread::id> threads{};
    std::promise<void> over{};

    void next() {
        if (begun.fetch_add(1) >= calls) return;
        group.submit_async(std::make_shared<Number>(1), Deadline::after(20s),
                           [this](Result<void> result) {
                               if (!result) ++failed;
                               {
                                   const std::lock_guard lock(mutex);
                                   threads.insert(std::this_thread::get_id());
                               }
                               next();
                               if (ended.fetch_add(1) + 1 == calls) over.set_value();
                           });
    }
};

TEST_F(GroupCommitAsync, AThousandInFlightAreAnsweredByTwoThreads) {
    const auto group = make();
    ClosedLoop loop{*group, 20'000};
    for (int i = 0; i < 1000; ++i) loop.next();
    loop.over.get_future().wait();
    EXPECT_EQ(loop.failed, 0);
    EXPECT_EQ(rows(), 20'000);
    EXPECT_LE(loop.threads.size(), 2U);
    EXPECT_FALSE(loop.threads.contains(std::this_thread::get_id()));
    EXPECT_EQ(writer_->announced, 20'000U);
    EXPECT_LT(group->stats().batches, 2000U) << "they share transactions";
}

TEST_F(GroupCommitAsync, BothKindsOfCallersShareTransactions) {
    const auto group = make();
    ClosedLoop loop{*group, 5000};
    for (int i = 0; i < 100; ++i) loop.next();
    std::atomic<int> written{0};
    in_threads(16, [&](int) {
        for (int i = 0; i < 50; ++i) {
            if (group->submit(std::make_shared<Number>(2), Deadline::after(20s)).ok()) {
                ++written;
            }
        }
    });
    loop.over.get_future().wait();
    EXPECT_EQ(written, 800);
    EXPECT_EQ(loop.failed, 0);
    EXPECT_EQ(rows(), 5800);
}

TEST_F(GroupCommitAsync, ACallWhoseDeadlinePassesInTheQueueHasNothingApplied) {
    const auto group = make();
    auto lock = std::make_unique<Result<Lease>>(database_->writer(Deadline::after(1s)));
    auto patient = begin(*group, 1);
    std::vector<std::future<Result<void>>> hurried;
    const auto started = std::chrono::steady_clock::now();
    for (int i = 0; i < 100; ++i) hurried.push_back(begin(*group, 2, 50ms));
    for (auto& call : hurried) {
        EXPECT_TRUE(failed_with(call.get(), ErrorCode::deadline, "nothing was applied"));
    }
    EXPECT_LE(std::chrono::steady_clock::now() - started, 1s) << "50 ms, and a slow machine";
    lock.reset();
    EXPECT_TRUE(succeeded(patient.get()));
    EXPECT_EQ(rows(), 1);
}

TEST_F(GroupCommitAsync, WithOneThreadDeadlinesAreSeenToBetweenTransactions) {
    GroupCommitOptions options;
    options.workers = 1;
    const auto group = make(options);
    auto lock = std::make_unique<Result<Lease>>(database_->writer(Deadline::after(1s)));
    EXPECT_TRUE(failed_with(begin(*group, 1, 50ms).get(), ErrorCode::deadline));
    lock.reset();
    EXPECT_TRUE(succeeded(begin(*group, 2).get()));
    EXPECT_EQ(rows(), 1);
}

TEST_F(GroupCommitAsync, BlockedCallersAreServedWhereTheCallBeforeThemGoes) {
    const auto group = make();
    auto lock = std::make_unique<Result<Lease>>(database_->writer(Deadline::after(1s)));
    auto hurried = begin(*group, 1, 100ms);
    std::vector<std::thread> staying;
    for (int i = 0; i < 8; ++i) {
        staying.emplace_back([&] {
            EXPECT_TRUE(
                succeeded(group->submit(std::make_shared<Number>(2), Deadline::after(10s))));
        });
    }
    EXPECT_TRUE(failed_with(hurried.get(), ErrorCode::deadline));
    lock.reset();
    for (auto& thread : staying) thread.join();
    EXPECT_EQ(rows(), 8);
}

TEST_F(GroupCommitAsync, AFullQueueIsToldByTheCompletion) {
    GroupCommitOptions options;
    options.max_queue = 2;
    const auto group = make(options);
    auto lock = std::make_unique<Result<Lease>>(database_->writer(Deadline::after(1s)));
    auto first = begin(*group, 1);
    auto second = begin(*group, 2);
    auto refused = begin(*group, 3);
    ASSERT_EQ(refused.wait_for(0s), std::future_status::ready) << "before submit_async returns";
    EXPECT_TRUE(failed_with(refused.get(), ErrorCode::capacity, "2 writes wait"));
    lock.reset();
    EXPECT_TRUE(succeeded(first.get()));
    EXPECT_TRUE(succeeded(second.get()));
}

TEST_F(GroupCommitAsync, ALargeCallIsHandedInPortionByPortion) {
    GroupCommitOptions options;
    options.max_queue = 10;
    const auto group = make(options);
    std::vector<std::shared_ptr<QueuedWrite>> writes;
    for (int i = 0; i < 100; ++i) writes.push_back(std::make_shared<Number>(i));
    writes[42] = std::make_shared<Number>(NumberWriter::kSpoilsBatch);
    std::promise<std::vector<Result<void>>> promise;
    group->submit_all_async(writes, Deadline::after(10s),
                            [&](auto results) { promise.set_value(std::move(results)); });
    const auto results = promise.get_future().get();
    ASSERT_EQ(results.size(), 100U);
    for (std::size_t i = 0; i < 100; ++i) EXPECT_EQ(results[i].ok(), i != 42) << i;
    EXPECT_EQ(rows(), 99);
    std::promise<std::size_t> none;
    group->submit_all_async({}, Deadline::after(1s),
                            [&](auto no_results) { none.set_value(no_results.size()); });
    EXPECT_EQ(none.get_future().get(), 0U);
}

TEST_F(GroupCommitAsync, OrderOfSubmissionIsOrderOfApplicationWhateverFails) {
    const auto scripted = std::make_shared<ScriptedDatabase>();
    GroupCommitOptions options;
    options.max_batch = 7;
    GroupCommit group{scripted, writer_, options};
    std::vector<std::future<Result<void>>> calls;
    for (std::int64_t value = 0; value < 2000; ++value) {
        if (value % 97 == 0) {
            scripted->fail_next(Step::write, make_error(ErrorCode::deadline, "deadlock", "40P01",
                                                        SqlCondition::transaction_conflict));
        }
        if (value % 211 == 0) {
            scripted->fail_next(Step::commit, make_error(ErrorCode::unavailable, "lost"));
        }
        calls.push_back(begin(group, value % 50 == 13 ? NumberWriter::kSpoilsBatch : value));
        if (value % 300 == 5) {
            EXPECT_TRUE(
                succeeded(group.submit(std::make_shared<Number>(value), Deadline::after(10s))));
        }
    }
    for (auto& call : calls) (void)call.get();
    const auto rows = scripted->rows();
    EXPECT_GT(rows.size(), 1900U);
    EXPECT_TRUE(std::is_sorted(rows.begin(), rows.end()));
}

TEST_F(GroupCommitAsync, TheEndWaitsForWhatIsWrittenAndRefusesTheRest) {
    const auto scripted = std::make_shared<ScriptedDatabase>();
    auto group = std::make_unique<GroupCommit>(scripted, writer_, GroupCommitOptions{});
    scripted->hold(Step::write);
    auto written = begin(*group, 1);
    scripted->await_held();
    auto queued = begin(*group, 2);
    std::thread ending([&] { group.reset(); });
    EXPECT_TRUE(failed_with(queued.get(), ErrorCode::closed, "nothing was applied"));
    EXPECT_EQ(written.wait_for(0s), std::future_status::timeout);
    scripted->release();
    ending.join();
    ASSERT_EQ(written.wait_for(0s), std::future_status::ready) << "the destructor has waited";
    EXPECT_TRUE(succeeded(written.get()));
}

TEST_F(GroupCommitAsync, ACompletionMayBeWhatEndsTheGroup) {
    auto group = std::make_shared<std::unique_ptr<GroupCommit>>(make());
    std::promise<Result<void>> first;
    std::promise<Result<void>> second;
    {
        auto lock = std::make_unique<Result<Lease>>(database_->writer(Deadline::after(1s)));
        GroupCommit& kept = **group;
        kept.submit_async(std::make_shared<Number>(1), Deadline::after(5s),
                          [group, &first](Result<void> result) {
                              group->reset();
                              first.set_value(result);
                          });
        kept.submit_async(std::make_shared<Number>(2), Deadline::after(5s),
                          [&](Result<void> result) { second.set_value(result); });
    }
    EXPECT_TRUE(succeeded(first.get_future().get()));
    EXPECT_TRUE(succeeded(second.get_future().get())) << "it was in the same transaction";
    EXPECT_EQ(rows(), 2);
}

TEST_F(GroupCommitAsync, HurriedAndPatientCallsMixWithoutLoss) {
    GroupCommitOptions options;
    options.max_batch = 8;
    const auto group = make(options);
    std::atomic<std::int64_t> acknowledged{0};
    std::atomic<std::int64_t> unknown{0};
    std::atomic<int> open{3000};
    std::promise<void> over;
    for (int i = 0; i < 3000; ++i) {
        const Duration patience = i % 3 == 0 ? 3ms : 20s;
        group->submit_async(std::make_shared<Number>(1), Deadline::after(patience),
                            [&](Result<void> result) {
                                if (result.ok()) {
                                    ++acknowledged;
                                } else if (result.error().code == ErrorCode::outcome_unknown) {
                                    ++unknown;
                                } else {
                                    EXPECT_TRUE(failed_with(result, ErrorCode::deadline));
                                }
                                if (open.fetch_sub(1) == 1) over.set_value();
                            });
    }
    over.get_future().wait();
    EXPECT_GE(acknowledged, 2000);
    EXPECT_GE(rows(), acknowledged);
    EXPECT_LE(rows(), acknowledged + unknown);
}

}  // namespace
}  // namespace hotcount::sql
