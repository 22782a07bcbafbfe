// The table of one SlottedCounter, and the statements over it, made once.
#pragma once

#include <hotcount/slotted_counter.hpp>
#include <hotcount/sql.hpp>
#include <string>
#include <vector>

#include "sql/dialect.hpp"

namespace hotcount {

class SlotTable {
  public:
    SlotTable(const SlottedCounterOptions& options, sql::Dialect dialect);

    /// Whether the database has one writer at a time, and so no row that another one holds.
    bool one_writer() const { return one_writer_; }
    std::string schema;  ///< Creates table and ledger; idempotent.

    // Parameters in order, then the columns returned.
    /// key, slot, n: adds if the row is there. With one writer also if it is not, and -> count.
    sql::Statement add;
    sql::Statement add_or_insert;  ///< key, slot, n; if not one_writer()
    sql::Statement take_free;      ///< key, slot -> a row, locked, unless it is absent or locked
    sql::Statement find;           ///< key, slot -> a row
    sql::Statement sum;            ///< key -> sum over its slots
    sql::Statement lock_rows;      ///< key -> slot, count: all its rows, locked, in order
    sql::Statement remove;         ///< key, slot
    sql::Statement remember_op;    ///< key, op_id, seconds; changes no row if it is known
    sql::Statement
        old_ops;  ///< seconds, limit -> key, op_id: older ones that no other transaction removes
    sql::Statement forget_op;  ///< key, op_id

    /// Several rows in one statement.
    struct Rows {
        std::size_t rows;
        sql::Statement add_or_insert;  ///< key, slot, n of each row
    };
    /// The largest first; empty with one writer: a statement there costs no round trip.
    std::vector<Rows> add_rows;

  private:
    struct Names;
    SlotTable(const Names& names, const sql::Grammar& grammar);
    bool one_writer_;
};

}  // namespace hotcount
