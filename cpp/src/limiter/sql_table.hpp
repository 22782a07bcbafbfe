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
#include "sql/statements.hpp"
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

    std::vector<LimitStatement> lock;
    std::vector<LimitStatement> insert;
    std::vector<LimitStatement> write;
    sql::Statement update;
    sql::Statement look;
    sql::Statement remove;
    sql::Statement expired;

  private:
    LimitTable(const sql::Statements& sql, bool one_writer);
    bool one_writer_;
};

/// The clock where the database has none finer: SQLite reads this machine's, in milliseconds.
std::int64_t wall_us();

/// When a row is removed whose state ends at `ends_us`: at a multiple of a power of two, a minute or
/// more, and at least an eighth of what is left.
std::int64_t rounded_expiry(std::int64_t now_us, std::int64_t ends_us);

}  // namespace hotcount
