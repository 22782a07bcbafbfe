// Writers that commit by themselves: what they leave for later, and rows that others hold.
#include <condition_variable>
#include <future>
#include <hotcount/detail/sql/group_commit.hpp>
#include <map>
#include <set>
#include <thread>

#include "support/callers.hpp"
#include "support/result_matchers.hpp"
#include "support/scripted_database.hpp"

namespace hotcount::sql {
namespace {

using namespace std::chrono_literals;
using hotcount::testing::failed_with;
using hotcount::testing::in_threads;
using hotcount::testing::ScriptedDatabase;
using hotcount::testing::succeeded;

// Sets a user's value for an item.
struct Write final : QueuedWrite {
    Write(std::uint64_t to_item, std::uint64_t by_user, int to_value)
        : QueuedWrite(RowKeys{to_item + 1, 1'000'000 + to_item * 1000 + by_user}),
          item(to_item),
          user(by_user),
          value(to_value) {}
    const std::uint64_t item;
    const std::uint64_t user;
    const int value;
};

struct Applied {
    std::uint64_t item;
    std::uint64_t user;
    int value;
    bool operator==(const Applied&) const = default;
};

// A table whose items and rows the test holds. It skips items that are held, as SKIP LOCKED does, and
// waits for rows; a batch that is alone waits for its item too.
class HeldWriter final : public BatchWriter {
  public:
    static constexpr int kSpoilsBatch = -1;

    bool commits_by_itself() const override { return true; }

    Result<void> write(Connection&, Batch batch, BatchTurn& turn) override {
        EXPECT_LE(++calls_, 2) << "the held thread's and one leader's";
        const auto result = write_batch(batch, turn);
        --calls_;
        return result;
    }

    Result<void> write_batch(std::span<const std::shared_ptr<QueuedWrite>> batch, BatchTurn& turn) {
        const bool alone = batch.size() == 1 && turn.is_alone();
        HOTCOUNT_TRY(turn.seal());
        const Alone how = turn.alone(false);
        const auto started = std::chrono::steady_clock::now();
        std::unique_lock lock(mutex_);
        ++batches_;
        const bool waits = turn.waits_for() > 0s;
        if (waits) ++waited_;
        if (turn.is_retry()) note_retry(batch);
        // What the statement would wait for.
        const auto is_blocked = [&] {
            return std::any_of(batch.begin(), batch.end(), [&](const auto& queued) {
                const auto& write = static_cast<const Write&>(*queued);
                return rows_.contains({write.item, write.user}) ||
                       ((alone || waits) && items_.contains(write.item));
            });
        };
        changed_.notify_all();
        while (is_blocked()) {
            blocked_ = batch.size();  // Again and again: the held thread's batch says so too.
            changed_.notify_all();
            if (waits && std::chrono::steady_clock::now() - started > turn.waits_for()) break;
            const bool patient = std::chrono::steady_clock::now() - started < how.patience;
            lock.unlock();
            const bool gives_way = !patient && how.gives_way();
            lock.lock();
            if (how.deadline.passed() || (gives_way && !waits)) {
                blocked_ = 0;
                return make_error(ErrorCode::deadline, "cancelled", "57014",
                                  SqlCondition::query_canceled);
            }
            changed_.wait_for(lock, 1ms);
        }
        blocked_ = 0;
        for (const auto& queued : batch) {
            if (static_cast<const Write&>(*queued).value == kSpoilsBatch) {
                return make_error(ErrorCode::integrity, "spoils", "23514");
            }
        }
        if (unanswered_ > 0) {
            --unanswered_;
            return make_error(ErrorCode::outcome_unknown, "no answer");
        }
        std::set<std::pair<std::uint64_t, std::uint64_t>> rows;
        for (const auto& queued : batch) {
            const auto& write = static_cast<const Write&>(*queued);
            if (!rows.emplace(write.item, write.user).second) {
                queued->fate = QueuedWrite::Fate::deferred;
            } else if (items_.contains(write.item)) {
                queued->fate = QueuedWrite::Fate::shared_held;
                ++found_held_;
            } else {
                applied_.push_back({write.item, write.user, write.value});
            }
        }
        changed_.notify_all();
        return {};
    }

    // Under the mutex.
    void note_retry(std::span<const std::shared_ptr<QueuedWrite>> batch) {
        std::set<std::uint64_t> items;
        for (const auto& queued : batch) items.insert(static_cast<const Write&>(*queued).item);
        if (items.size() == 1) retried_alone_.insert(*items.begin());
    }

    void hold(std::uint64_t item) {
        const std::lock_guard lock(mutex_);
        items_.insert(item);
    }
    void hold_row(std::uint64_t item, std::uint64_t user) {
        const std::lock_guard lock(mutex_);
        rows_.emplace(item, user);
    }
    void release_row(std::uint64_t item, std::uint64_t user) {
        const std::lock_guard lock(mutex_);
        rows_.erase({item, user});
        changed_.notify_all();
    }
    void release() {
        const std::lock_guard lock(mutex_);
        items_.clear();
        rows_.clear();
        changed_.notify_all();
    }
    void leave_unanswered(int batches) {
        const std::lock_guard lock(mutex_);
        unanswered_ = batches;
    }
    void await_blocked(std::size_t writes = 1) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return blocked_ >= writes; });
    }
    void await_found_held() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return found_held_ > 0; });
    }
    void await_batches(int more) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&, until = batches_ + more] { return batches_ >= until; });
    }
    /// Returns how many batches there were until then.
    int await_waiting(int times = 1) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return waited_ >= times; });
        return batches_;
    }
    /// False if the held thread never tries that item and no other one with it.
    bool await_retry_alone(std::uint64_t item) {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, 20s, [&] { return retried_alone_.contains(item); });
    }
    std::vector<Applied> applied() const {
        const std::lock_guard lock(mutex_);
        return applied_;
    }

  private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::set<std::uint64_t> items_;
    std::set<std::pair<std::uint64_t, std::uint64_t>> rows_;
    std::vector<Applied> applied_;
    std::set<std::uint64_t> retried_alone_;
    std::size_t blocked_{0};  // Writes in the batch that waits.
    int found_held_{0};
    std::atomic<int> calls_{0};
    int batches_{0};
    int waited_{0};
    int unanswered_{0};
};

class GroupCommitHeld : public ::testing::Test {
  protected:
    using Answer = std::future<Result<void>>;

    Answer begin(std::uint64_t item, std::uint64_t user, int value, Duration timeout = 30s) {
        auto promise = std::make_shared<std::promise<Result<void>>>();
        auto future = promise->get_future();
        group_->submit_async(std::make_shared<Write>(item, user, value), Deadline::after(timeout),
                             [promise](Result<void> result) { promise->set_value(result); });
        return future;
    }
    Result<void> submit(std::uint64_t item, std::uint64_t user, int value, Duration timeout = 30s) {
        return group_->submit(std::make_shared<Write>(item, user, value), Deadline::after(timeout));
    }
    static std::vector<std::shared_ptr<QueuedWrite>> writes(std::initializer_list<Applied> list) {
        std::vector<std::shared_ptr<QueuedWrite>> queued_writes;
        for (const auto& each : list) {
            queued_writes.push_back(std::make_shared<Write>(each.item, each.user, each.value));
        }
        return queued_writes;
    }
    static bool is_open(Answer& answer) {
        return answer.wait_for(0s) == std::future_status::timeout;
    }

    std::shared_ptr<ScriptedDatabase> database_ = std::make_shared<ScriptedDatabase>();
    std::shared_ptr<HeldWriter> writer_ = std::make_shared<HeldWriter>();
    std::unique_ptr<GroupCommit> group_ =
        std::make_unique<GroupCommit>(database_, writer_, GroupCommitOptions{});
};

TEST_F(GroupCommitHeld, WhatIsHeldKeepsNobodyWaitingAndLandsAfterwards) {
    writer_->hold(1);
    auto results = std::async(std::launch::async, [&] {
        return group_->submit_all(writes({{1, 7, 1}, {2, 7, 2}, {3, 7, 3}}), Deadline::after(30s));
    });
    while (group_->stats().held == 0) std::this_thread::sleep_for(1ms);
    auto other = begin(2, 8, 4);
    EXPECT_TRUE(succeeded(other.get()));
    EXPECT_TRUE(succeeded(submit(3, 8, 5)));
    EXPECT_EQ(results.wait_for(0s), std::future_status::timeout);
    writer_->release();
    for (const auto& result : results.get()) EXPECT_TRUE(succeeded(result));
    EXPECT_EQ(writer_->applied().back(), (Applied{1, 7, 1}));
    EXPECT_EQ(group_->stats().held, 0U);
    EXPECT_EQ(group_->stats().writes, 5U);
}

TEST_F(GroupCommitHeld, WhatIsHeldKeepsNoPortionOfItsOwnCallWaiting) {
    GroupCommitOptions options;
    options.max_batch = 4;
    group_ = std::make_unique<GroupCommit>(database_, writer_, options);
    writer_->hold(1);
    const ManyWrites many{100,
                          [](std::size_t i) {
                              return std::make_shared<Write>(i < 8 ? 1 : 2, i, static_cast<int>(i));
                          },
                          [](std::size_t, const QueuedWrite*, const Result<void>& result) {
                              EXPECT_TRUE(succeeded(result));
                          }};
    auto waits =
        std::async(std::launch::async, [&] { group_->submit_all(many, Deadline::after(30s)); });
    while (writer_->applied().size() < 92) std::this_thread::sleep_for(1ms);
    std::promise<void> ended;
    group_->submit_all_async(many, Deadline::after(30s), [&] { ended.set_value(); });
    while (writer_->applied().size() < 184) std::this_thread::sleep_for(1ms);
    EXPECT_EQ(group_->stats().held, 16U);
    writer_->release();
    waits.get();
    ended.get_future().get();
    EXPECT_EQ(writer_->applied().size(), 200U);
}

TEST_F(GroupCommitHeld, LaterWritesToAHeldItemQueueBehindItInOrder) {
    writer_->hold(1);
    std::vector<Answer> answers;
    for (int value = 1; value <= 20; ++value) {
        answers.push_back(begin(1, 7, value));
        EXPECT_TRUE(succeeded(submit(2, 7, value)));
    }
    EXPECT_EQ(group_->stats().held, 20U);
    EXPECT_GT(group_->stats().held_for, 0s);
    writer_->release();
    for (auto& answer : answers) EXPECT_TRUE(succeeded(answer.get()));
    int last = 0;
    for (const Applied& each : writer_->applied()) {
        if (each.item == 1) {
            EXPECT_EQ(each.value, ++last);
        }
    }
    EXPECT_EQ(last, 20);
}

TEST_F(GroupCommitHeld, ASecondWriteToARowFollowsTheFirst) {
    const auto results = group_->submit_all(writes({{1, 7, 1}, {1, 7, 2}, {1, 8, 3}, {1, 7, 4}}),
                                            Deadline::after(30s));
    for (const auto& result : results) EXPECT_TRUE(succeeded(result));
    EXPECT_EQ(writer_->applied(),
              (std::vector<Applied>{{1, 7, 1}, {1, 8, 3}, {1, 7, 2}, {1, 7, 4}}));
    EXPECT_EQ(group_->stats().batches, 3U);
}

TEST_F(GroupCommitHeld, ABadWriteAmongWritesToOneRowFailsAloneAndOrderIsKept) {
    const auto results = group_->submit_all(
        writes({{1, 7, 1}, {1, 7, 2}, {1, 8, HeldWriter::kSpoilsBatch}, {1, 7, 3}, {2, 7, 4}}),
        Deadline::after(30s));
    EXPECT_TRUE(failed_with(results[2], ErrorCode::integrity, "spoils"));
    for (const std::size_t good : {0, 1, 3, 4}) EXPECT_TRUE(succeeded(results[good])) << good;
    int last = 0;
    for (const Applied& each : writer_->applied()) {
        if (each.item == 1) {
            EXPECT_EQ(each.value, ++last);
        }
    }
    EXPECT_EQ(last, 3);
}

TEST_F(GroupCommitHeld, WhoseDeadlinePassesWhileTheRowIsHeldHasNothingApplied) {
    writer_->hold(1);
    auto patient = begin(1, 8, 2);
    EXPECT_TRUE(failed_with(submit(1, 7, 1, 200ms), ErrorCode::deadline, "nothing was applied"));
    EXPECT_TRUE(failed_with(begin(1, 9, 3, 200ms).get(), ErrorCode::deadline,
                            "another transaction held the row"));
    writer_->release();
    EXPECT_TRUE(succeeded(patient.get()));
    EXPECT_TRUE(succeeded(submit(2, 7, 4)));
    EXPECT_EQ(writer_->applied(), (std::vector<Applied>{{1, 8, 2}, {2, 7, 4}}));
}

TEST_F(GroupCommitHeld, ALoneWriteThatWaitsForItsItemGivesWayToThoseWhoCome) {
    writer_->hold(1);
    auto held = std::async(std::launch::async, [&] { return submit(1, 7, 1); });
    writer_->await_blocked();
    EXPECT_TRUE(succeeded(submit(2, 7, 2)));
    EXPECT_EQ(held.wait_for(0s), std::future_status::timeout);
    writer_->release();
    EXPECT_TRUE(succeeded(held.get()));
    EXPECT_EQ(writer_->applied(), (std::vector<Applied>{{2, 7, 2}, {1, 7, 1}}));
}

TEST_F(GroupCommitHeld, OneRowThatIsHeldIsFoundByHalves) {
    writer_->hold_row(1, 7);
    auto results = std::async(std::launch::async, [&] {
        return group_->submit_all(writes({{1, 6, 1}, {1, 7, 2}, {1, 8, 3}, {2, 7, 4}, {1, 7, 5}}),
                                  Deadline::after(30s));
    });
    writer_->await_blocked();
    EXPECT_TRUE(succeeded(submit(3, 1, 6)));
    EXPECT_TRUE(succeeded(submit(1, 9, 7))) << "the item is free";
    auto behind = begin(1, 7, 8);
    writer_->release();
    for (const auto& result : results.get()) EXPECT_TRUE(succeeded(result));
    EXPECT_TRUE(succeeded(behind.get()));
    std::vector<int> of_row;
    for (const Applied& each : writer_->applied()) {
        if (each.item == 1 && each.user == 7) of_row.push_back(each.value);
    }
    EXPECT_EQ(of_row, (std::vector<int>{2, 5, 8}));
}

TEST_F(GroupCommitHeld, WhatIsFoundHeldInMidBatchFollowsTheBatch) {
    writer_->hold_row(1, 7);
    writer_->hold_row(1, 8);
    auto held_batch = begin(1, 7, 1);
    EXPECT_TRUE(succeeded(submit(3, 7, 1))) << "to which it gives way";
    EXPECT_EQ(group_->stats().held, 1U);
    auto batch = std::async(std::launch::async, [&] {
        return group_->submit_all(writes({{1, 8, 1}, {1, 8, 2}, {2, 8, 9}}), Deadline::after(30s));
    });
    writer_->await_blocked(3);
    // The held thread finds that the item is held which the batch found free.
    writer_->hold(1);
    writer_->release_row(1, 7);
    writer_->await_found_held();
    auto other = begin(1, 9, 1);
    while (group_->stats().held < 2) std::this_thread::sleep_for(1ms);
    auto third = begin(1, 8, 3);
    writer_->release();
    for (auto* answer : {&held_batch, &other, &third}) EXPECT_TRUE(succeeded(answer->get()));
    for (const auto& result : batch.get()) EXPECT_TRUE(succeeded(result));
    std::vector<int> of_row;
    for (const Applied& each : writer_->applied()) {
        if (each.item == 1 && each.user == 8) of_row.push_back(each.value);
    }
    EXPECT_EQ(of_row, (std::vector<int>{1, 2, 3}));
}

TEST_F(GroupCommitHeld, WhatIsHeldForLongIsWaitedFor) {
    writer_->hold(1);
    writer_->hold(2);
    auto first = begin(1, 7, 1);
    auto second = begin(2, 7, 2);
    EXPECT_TRUE(succeeded(submit(3, 7, 3)));
    writer_->await_waiting();
    EXPECT_TRUE(succeeded(submit(3, 7, 4)));
    writer_->release();
    EXPECT_TRUE(succeeded(first.get()));
    EXPECT_TRUE(succeeded(second.get()));
}

TEST_F(GroupCommitHeld, WhatIsHeldForLongIsTriedMoreOftenThanWaitedFor) {
    writer_->hold(1);
    auto held = begin(1, 7, 1);
    EXPECT_TRUE(
        succeeded(submit(3, 7, 3)));  // A write that is alone waits; with another it is held.
    const int first = writer_->await_waiting(1);
    const int second = writer_->await_waiting(2);
    EXPECT_GE(second - first, 5) << "what else is held has its turns in between";
    writer_->release();
    EXPECT_TRUE(succeeded(held.get()));
}

TEST_F(GroupCommitHeld, WhatWasFoundHeldAMomentAgoIsTriedSoonerThanWhatIsHeldForLong) {
    writer_->hold(1);
    auto held_for_long = begin(1, 7, 1);
    EXPECT_TRUE(succeeded(submit(3, 7, 3)));
    writer_->await_batches(8);
    writer_->hold(2);
    auto held_later = begin(2, 7, 2);
    EXPECT_TRUE(succeeded(submit(3, 7, 4)));
    EXPECT_TRUE(writer_->await_retry_alone(2));
    writer_->release();
    EXPECT_TRUE(succeeded(held_for_long.get()));
    EXPECT_TRUE(succeeded(held_later.get()));
}

TEST_F(GroupCommitHeld, ClosingEndsWhatIsHeld) {
    writer_->hold(1);
    auto held = begin(1, 7, 1);
    EXPECT_TRUE(succeeded(begin(2, 7, 2).get()));
    group_.reset();
    EXPECT_TRUE(failed_with(held.get(), ErrorCode::closed, "nothing was applied"));
    writer_->release();
    EXPECT_EQ(writer_->applied(), (std::vector<Applied>{{2, 7, 2}}));
}

TEST_F(GroupCommitHeld, ABatchWithoutAnAnswerIsUnknownToThoseInIt) {
    writer_->leave_unanswered(1);
    const auto results =
        group_->submit_all(writes({{1, 7, 1}, {1, 7, 2}, {2, 7, 3}}), Deadline::after(30s));
    for (const auto& result : results) {
        EXPECT_TRUE(failed_with(result, ErrorCode::outcome_unknown));
    }
    EXPECT_TRUE(succeeded(submit(1, 7, 4)));
    EXPECT_EQ(writer_->applied(), (std::vector<Applied>{{1, 7, 4}}));
}

TEST_F(GroupCommitHeld, WritesHeldAndReleasedByManyAreAppliedOnceAndInOrder) {
    std::atomic<bool> done{false};
    std::thread locker([&] {
        for (std::uint64_t round = 0; !done; ++round) {
            writer_->hold(round % 4);
            writer_->hold_row((round + 1) % 4, round % 3);
            std::this_thread::sleep_for(std::chrono::milliseconds{1 + round % 7});
            writer_->release();
            std::this_thread::sleep_for(1ms);
        }
    });
    std::atomic<int> acknowledged{0};
    // A row is one voter's, who does not wait for one write before the next.
    in_threads(std::uint64_t{3}, [&](std::uint64_t user) {
        std::vector<Answer> answers;
        for (int value = 1; value <= 200; ++value) {
            for (std::uint64_t item = 0; item < 4; ++item) {
                if (value % 50 == 0) {
                    if (submit(item, user, value).ok()) ++acknowledged;
                } else {
                    answers.push_back(begin(item, user, value));
                }
            }
        }
        for (auto& answer : answers) {
            if (answer.get().ok()) ++acknowledged;
        }
    });
    done = true;
    locker.join();
    EXPECT_EQ(acknowledged, 3 * 4 * 200);
    std::map<std::pair<std::uint64_t, std::uint64_t>, int> last;
    for (const Applied& each : writer_->applied()) {
        EXPECT_EQ(each.value, ++last[std::pair(each.item, each.user)]);
    }
    EXPECT_EQ(writer_->applied().size(), 3U * 4 * 200);
}

}  // namespace
}  // namespace hotcount::sql
