// Which reads share a statement, and what a caller gets whose statement another one sent.
#include "votes/tables/joined_reads.hpp"

#include <condition_variable>
#include <future>
#include <optional>
#include <thread>

#include "support/result_matchers.hpp"

namespace hotcount {
namespace {

using namespace std::chrono_literals;
using testing::failed_with;
using testing::succeeded;
using Items = std::vector<std::int64_t>;

constexpr Duration kLong = 30s;

// The statements: each waits until it is let through. A count is ten times the item's number.
class Statements {
  public:
    JoinedReads::Counts run(std::span<const sql::Id> items, Deadline deadline) {
        std::unique_lock lock(mutex_);
        Items numbers;
        for (const sql::Id& item : items) numbers.push_back(std::get<std::int64_t>(item));
        sent_.push_back(numbers);
        const std::size_t self = sent_.size();
        changed_.notify_all();
        if (!changed_.wait_until(lock, deadline.time(), [&] { return let_through_ >= self; })) {
            return make_error(ErrorCode::deadline, "the deadline passed");
        }
        for (std::int64_t& number : numbers) {
            if (number == refused_) return make_error(ErrorCode::overflow, "refused");
            number *= 10;
        }
        return numbers;
    }
    /// Waits until `count` reads were sent; returns their items.
    std::vector<Items> sent(std::size_t count) {
        std::unique_lock lock(mutex_);
        EXPECT_TRUE(changed_.wait_for(lock, kLong, [&] { return sent_.size() >= count; }));
        return sent_;
    }
    void let_through(std::size_t count) {
        const std::lock_guard lock(mutex_);
        let_through_ = count;
        changed_.notify_all();
    }
    void refuse(std::int64_t item) { refused_ = item; }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Items> sent_;
    std::size_t let_through_{0};
    std::optional<std::int64_t> refused_;
};

class JoinedReadsTest : public ::testing::Test {
  protected:
    using Answer = std::future<JoinedReads::Counts>;

    // In a thread of its own; returns once it waits to be sent, as one of `waiting`.
    Answer start(const Items& items, std::size_t waiting, Duration timeout = kLong) {
        Answer answer = start_now(items, timeout);
        const auto until = std::chrono::steady_clock::now() + kLong;
        while (reads_.waiting() < waiting && std::chrono::steady_clock::now() < until) {
            std::this_thread::yield();
        }
        EXPECT_EQ(reads_.waiting(), waiting);
        return answer;
    }
    Answer start_now(const Items& items, Duration timeout = kLong) {
        return std::async(std::launch::async, [this, items, timeout] {
            const std::vector<sql::Id> ids(items.begin(), items.end());
            return reads_.read(ids, Deadline::after(timeout));
        });
    }

    Statements statements_;
    JoinedReads reads_{[this](std::span<const sql::Id> items, Deadline deadline) {
                           return statements_.run(items, deadline);
                       },
                       1};
};

TEST_F(JoinedReadsTest, ReadsThatComeWhileAStatementIsUnderWayShareTheNextOne) {
    Answer first = start_now({1});
    statements_.sent(1);
    Answer second = start({2, 1}, 1);
    Answer third = start({2}, 2);
    statements_.let_through(1);
    // The first one's was sent before the others came: they may know of votes that it does not.
    EXPECT_EQ(statements_.sent(2), (std::vector<Items>{{1}, {2, 1}}));
    statements_.let_through(2);
    EXPECT_EQ(*first.get(), (Items{10}));
    EXPECT_EQ(*second.get(), (Items{20, 10}));
    EXPECT_EQ(*third.get(), (Items{20}));
    EXPECT_EQ(statements_.sent(2).size(), 2U);
}

TEST_F(JoinedReadsTest, ARefusedItemFailsOnlyItsReader) {
    statements_.refuse(3);
    Answer first = start_now({1});
    statements_.sent(1);
    Answer refused = start({3}, 1);
    Answer good = start({2}, 2);
    statements_.let_through(100);
    EXPECT_TRUE(succeeded(first.get()));
    EXPECT_TRUE(failed_with(refused.get(), ErrorCode::overflow));
    const auto counts = good.get();
    ASSERT_TRUE(succeeded(counts));
    EXPECT_EQ(*counts, (Items{20}));
}

TEST_F(JoinedReadsTest, ACallerWhoseDeadlinePassesLeavesAndTheOthersGoOn) {
    Answer first = start_now({1});
    statements_.sent(1);
    // Not start(): on a busy machine it may have left before anybody sees that it waits.
    Answer late = start_now({2}, 20ms);
    Answer patient = start_now({2});
    EXPECT_TRUE(failed_with(late.get(), ErrorCode::deadline));
    statements_.let_through(100);
    EXPECT_TRUE(succeeded(first.get()));
    EXPECT_TRUE(succeeded(patient.get()));
}

TEST_F(JoinedReadsTest, ALeaderWhoseDeadlinePassesFailsNobodyElse) {
    Answer first = start_now({1});
    statements_.sent(1);
    // It has waited for longest, so it has the next turn.
    Answer leader = start({2}, 1, 2s);
    Answer follower = start({3}, 2);
    statements_.let_through(1);
    EXPECT_EQ(statements_.sent(2).back(), (Items{2, 3}));
    EXPECT_TRUE(failed_with(leader.get(), ErrorCode::deadline));
    statements_.let_through(100);
    const auto counts = follower.get();
    ASSERT_TRUE(succeeded(counts));
    EXPECT_EQ(*counts, (Items{30}));
    EXPECT_TRUE(succeeded(first.get()));
}

TEST_F(JoinedReadsTest, ATurnGivenToWhoLeavesIsNotLost) {
    statements_.let_through(1'000'000);
    std::vector<std::jthread> callers;
    callers.reserve(8);
    for (int caller = 0; caller < 8; ++caller) {
        callers.emplace_back([this, caller] {
            const std::vector<sql::Id> ids{sql::Id{std::int64_t{caller}}};
            for (int i = 0; i < 2000; ++i) {
                const bool hasty = (i + caller) % 3 == 0;
                const auto counts =
                    reads_.read(ids, Deadline::after(hasty ? Duration{1us} : kLong));
                if (!hasty) {
                    ASSERT_TRUE(succeeded(counts));
                    ASSERT_EQ(counts->front(), 10 * caller);
                }
            }
        });
    }
    callers.clear();
    EXPECT_EQ(reads_.waiting(), 0U);
}

TEST_F(JoinedReadsTest, ATurnGivenToWhoWakesTooLateIsNotLost) {
    constexpr std::size_t kAtOnce = 4;
    JoinedReads reads{[this](std::span<const sql::Id> items, Deadline deadline) {
                          return statements_.run(items, deadline);
                      },
                      kAtOnce};
    constexpr std::size_t kMany = 1'000'000;
    statements_.let_through(kMany);
    std::vector<std::jthread> callers;
    callers.reserve(24);
    for (std::int64_t caller = 0; caller < 24; ++caller) {
        callers.emplace_back([&reads, caller] {
            const std::vector<sql::Id> ids{sql::Id{caller}};
            for (int i = 0; i < 2000; ++i) {
                ASSERT_TRUE(succeeded(reads.read(ids, Deadline::after(kLong))));
            }
        });
    }
    callers.clear();

    // As many statements as before are under way at once.
    const std::size_t before = statements_.sent(1).size();
    statements_.let_through(before);
    for (std::int64_t caller = 0; caller < static_cast<std::int64_t>(kAtOnce); ++caller) {
        callers.emplace_back([&reads, caller] {
            const std::vector<sql::Id> ids{sql::Id{caller}};
            ASSERT_TRUE(succeeded(reads.read(ids, Deadline::after(kLong))));
        });
    }
    EXPECT_GE(statements_.sent(before + kAtOnce).size(), before + kAtOnce);
    statements_.let_through(kMany);
}

TEST_F(JoinedReadsTest, WhatIsTooMuchForOneStatementIsReadAlone) {
    Answer first = start_now({1});
    statements_.sent(1);
    Items many;
    for (std::int64_t item = 0; item <= static_cast<std::int64_t>(JoinedReads::kMostItems); ++item)
        many.push_back(item);
    Answer all = start_now(many);
    EXPECT_EQ(statements_.sent(2).back(), many);
    statements_.let_through(2);
    EXPECT_TRUE(succeeded(first.get()));
    EXPECT_EQ(all.get()->size(), many.size());
}

}  // namespace
}  // namespace hotcount
