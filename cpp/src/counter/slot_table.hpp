// The table of one SlottedCounter, and the statements over it, made once.
#pragma once

#include <hotcount/slotted_counter.hpp>
#include <hotcount/sql.hpp>
#include <string>
#include <vector>

#include "sql/dialect.hpp"
#include "sql/statements.hpp"

namespace hotcount {

class SlotTable {
  public:
    SlotTable(const SlottedCounterOptions& options, sql::Dialect dialect);

    /// Whether the database has one writer at a time, and so no row that another one holds.
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
    /// The largest first; empty with one writer: a statement there costs no round trip.
    std::vector<Rows> add_rows;

  private:
    SlotTable(const sql::Statements& sql, bool one_writer);
    bool one_writer_;
};

}  // namespace hotcount
