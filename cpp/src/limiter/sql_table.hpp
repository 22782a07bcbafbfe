// The table of the limiters of one database, and the statements over it, made once.
//
//   hotcount_limit  key      the limiter's name, algorithm and rates, and the caller's key
//                   state    the law's integers (stored_law.hpp)
//                   expires  when the row can be removed, in microseconds since 1970, rounded up: a
//                            hit seldom moves it, so PostgreSQL need not touch its index
#pragma once

#include <cstdint>
#include <hotcount/sql.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sql/dialect.hpp"
#include "sql/table_name.hpp"

namespace hotcount {

/// Statements of several sizes, the largest first.
struct LimitStatement {
    std::size_t rows;
    sql::Statement statement;
};

class LimitTable {
  public:
    static constexpr std::string_view kIndexSuffix = "_expires";

    /// `table` as TableName::parse() takes it.
    LimitTable(std::string_view table, sql::Dialect dialect);

    /// Whether the database has one writer at a time: no row is held by another one.
    bool one_writer() const { return one_writer_; }
    std::string schema;  ///< Creates the table; idempotent.

    // Parameters in order, then the columns returned.
    std::vector<LimitStatement> lock;    ///< keys -> key, state, now: rows that are there, in order
    std::vector<LimitStatement> insert;  ///< keys: rows without a state, if they are not there
    std::vector<LimitStatement> write;   ///< key, state, expires of each; makes the row if need be
    sql::Statement update;               ///< key, state, expires: one that is there
    sql::Statement look;                 ///< key -> state, now
    sql::Statement remove;               ///< key
    sql::Statement expired;  ///< now, limit -> key: locked, none that another transaction holds

  private:
    LimitTable(const sql::TableName& table, const sql::Grammar& grammar);
    bool one_writer_;
};

/// The clock where the database has none finer: SQLite reads this machine's, in milliseconds.
std::int64_t wall_us();

/// When a row is removed whose state ends at `ends_us`: at a multiple of a power of two, a minute or
/// more, and at least an eighth of what is left.
std::int64_t rounded_expiry(std::int64_t now_us, std::int64_t ends_us);

}  // namespace hotcount
