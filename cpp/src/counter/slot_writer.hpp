// Writes the adds of one group commit: the op_ids that are new, then one update per row. SlotTable
// has the statements.
//
// Locks are taken in one order everywhere, ledger first, then rows by (key, slot).
#pragma once

#include <algorithm>
#include <atomic>
#include <hotcount/detail/sql/group_commit.hpp>
#include <hotcount/slotted_counter.hpp>
#include <hotcount/sql.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "sql/dialect.hpp"
#include "sql/statements.hpp"

namespace hotcount {

/// The table of one SlottedCounter, and the statements over it, made once.
class SlotTable {
  public:
    SlotTable(const SlottedCounterOptions& options, sql::Dialect dialect);

    /// Whether the database has one writer at a time, so that no other transaction locks a row.
    bool one_writer() const { return one_writer_; }
    std::string schema;  ///< Creates table and ledger; idempotent.

    sql::Statement add;            ///< With one writer it returns the count.
    sql::Statement add_or_insert;  ///< If not one_writer().
    sql::Statement take_free;
    sql::Statement find;
    sql::Statement sum;
    sql::Statement lock_rows;
    sql::Statement remove;
    sql::Statement remember_op;
    sql::Statement old_ops;
    sql::Statement forget_op;

    /// Several rows in one statement.
    struct Rows {
        std::size_t rows;
        sql::Statement add_or_insert;
    };
    /// The largest first. Empty with one writer, where a statement costs no round trip.
    std::vector<Rows> add_rows;

  private:
    SlotTable(const sql::Statements& sql, bool one_writer);
    bool one_writer_;
};

struct QueuedAdd final : sql::QueuedWrite {
    QueuedAdd(std::string_view to_key, std::int64_t to_add, std::optional<std::string_view> id = {},
              std::optional<std::int64_t> to_slot = {})
        : key(to_key), n(to_add), slot(to_slot) {
        if (id) op_id.emplace(*id);
    }
    const std::string key;
    const std::int64_t n;
    const std::optional<std::int64_t> slot;  // Null: the writer chooses.
    std::optional<std::string> op_id{};
};

/// The present number of slots, shared by all writers.
class Spread {
  public:
    /// `adaptive`: starts at 1 and may grow to `slots`.
    Spread(std::int64_t slots, bool adaptive)
        : slots_(adaptive ? 1 : slots), most_(slots), adaptive_(adaptive) {}
    std::int64_t slots() const { return slots_.load(std::memory_order_relaxed); }
    /// The slots that a caller may name.
    std::int64_t most() const { return adaptive_ ? std::max(most_, slots()) : slots(); }
    void resize(std::int64_t slots) { slots_.store(slots, std::memory_order_relaxed); }
    bool adaptive() const { return adaptive_; }
    /// Doubles the number of slots, at most to the given one, unless another writer has changed it
    /// from `found_too_few`.
    void grow(std::int64_t found_too_few);

  private:
    std::atomic<std::int64_t> slots_;
    std::int64_t most_;
    bool adaptive_;
};

class SlotWriter final : public sql::BatchWriter {
  public:
    SlotWriter(std::shared_ptr<const SlotTable> table, const SlottedCounterOptions& options,
               std::shared_ptr<Spread> spread)
        : table_(std::move(table)),
          choice_(options.slot_choice),
          op_keep_(options.op_keep),
          clock_(options.clock),
          spread_(std::move(spread)) {}

    Result<void> write(sql::Connection& connection, Batch batch, sql::BatchTurn&) override;

    /// Adds with an op_id can be written again: the ledger counts them once. Others are unknown.
    Result<std::vector<Found>> find_applied(sql::Connection& connection, Batch batch) override;

  private:
    struct Sum {
        std::string_view key;
        std::int64_t slot;
        std::int64_t n;
        bool named;  // A caller has chosen this slot.
    };

    Result<std::vector<const QueuedAdd*>> not_yet_counted(
        sql::Connection& connection,
        std::span<const std::shared_ptr<sql::QueuedWrite>> batch) const;
    Result<void> forget_ops(sql::Connection& connection, std::int64_t before,
                            std::size_t limit) const;
    std::int64_t slot_for(const sql::Connection& connection) const;
    Result<std::vector<Sum>> sums(const sql::Connection& connection,
                                  std::span<const QueuedAdd* const> adds) const;
    Result<void> add_where_free(sql::Connection& connection, const Sum& sum) const;

    const std::shared_ptr<const SlotTable> table_;
    const SlotChoice choice_;
    const Duration op_keep_;
    const std::shared_ptr<const Clock> clock_;
    const std::shared_ptr<Spread> spread_;
};

/// The error for a count that would leave 64 bits.
Error count_overflow(std::string_view key);

/// Adds to one row, which it inserts if it is absent.
Result<void> add_to_slot(sql::Connection& connection, const SlotTable& table, std::string_view key,
                         std::int64_t slot, std::int64_t n);

}  // namespace hotcount
