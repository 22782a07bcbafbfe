// Writes and a writer for tests of group commit: each write is a row.
#pragma once

#include <atomic>
#include <hotcount/detail/sql/group_commit.hpp>
#include <thread>

namespace hotcount::testing {

struct Number final : sql::QueuedWrite {
    explicit Number(std::int64_t number) : value(number) {}
    std::int64_t value;
};

// Writes each number as a row. Some of them fail, in the three ways there are.
class NumberWriter final : public sql::BatchWriter {
  public:
    static constexpr std::int64_t kRefusedAlone = -1;  // Sets QueuedWrite::error.
    static constexpr std::int64_t kSpoilsBatch = -2;   // Fails the batch as one write can.
    static constexpr std::int64_t kBreaksBatch = -3;   // Fails the batch as a full disk does.

    Result<void> write(sql::Connection& connection, Batch batch, sql::BatchTurn&) override {
        largest = std::max(largest.load(), batch.size());
        for (const auto& write : batch) {
            auto& number = static_cast<Number&>(*write);
            if (number.value == kRefusedAlone) {
                number.error = make_error(ErrorCode::integrity, "refused alone");
                continue;
            }
            if (number.value == kSpoilsBatch) return make_error(ErrorCode::overflow, "spoils");
            if (number.value == kBreaksBatch)
                return make_error(ErrorCode::database, "breaks", "SQLITE_FULL",
                                  SqlCondition::of_all_writes);
            HOTCOUNT_TRY(connection.execute(insert_, {number.value}));
        }
        while (hold) std::this_thread::sleep_for(std::chrono::milliseconds{1});
        return {};
    }
    bool works_before_answers() const override { return true; }
    std::function<void()> before_answers(std::span<const sql::WriteAnswer> answers,
                                         Deadline) override {
        ++announced_batches;
        announced += answers.size();
        while (hold_answers) std::this_thread::sleep_for(std::chrono::milliseconds{1});
        return [this] { ++done_afterwards; };
    }
    std::atomic<std::size_t> done_afterwards{0};
    std::atomic<std::size_t> announced_batches{0};
    std::atomic<bool> hold_answers{false};
    std::atomic<std::size_t> largest{0};
    std::atomic<std::size_t> announced{0};
    std::atomic<bool> hold{false};

  private:
    sql::Statement insert_{"INSERT INTO t VALUES (?1)"};
};

}  // namespace hotcount::testing
