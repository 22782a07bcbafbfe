// The table of the limiters of one database, the statements over it, made once, and what writes the
// hits of one group commit: one row for each key, locked in the order of the keys.
//
//   hotcount_limit  key      the limiter's name, algorithm and rates, and the caller's key
//                   state    the law's integers (stored_law.hpp)
//                   expires  when the row can be removed, in microseconds since 1970, rounded up: a
//                            hit seldom moves it, so PostgreSQL need not touch its index
#pragma once

#include <cstdint>
#include <functional>
#include <hotcount/detail/sql/group_commit.hpp>
#include <hotcount/sql.hpp>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "limiter/algorithm.hpp"
#include "limiter/stored_law.hpp"
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

/// When a row is removed whose state ends at `ends_us`: at a multiple of a power of two, a minute
/// or more, and at least an eighth of what is left.
std::int64_t rounded_expiry(std::int64_t now_us, std::int64_t ends_us);

/// A hit, a refund, a block or a reset.
struct QueuedHit final : sql::QueuedWrite {
    using Apply = std::function<Outcome(StoredKey&, std::int64_t now_us)>;
    QueuedHit(std::string of_key, std::shared_ptr<const StoredLaw> by_law, bool needs,
              Apply to_apply)
        : key(std::move(of_key)),
          law(std::move(by_law)),
          needs_row(needs),
          apply(std::move(to_apply)) {}

    const std::string key;
    const std::shared_ptr<const StoredLaw> law;  // The same for all hits of a key.
    const bool needs_row;  // There must be a row; what looks or gives back makes none.
    const Apply apply;     // None: a reset.
    Outcome outcome{};     // Once it is written.
};

class HitWriter final : public sql::BatchWriter {
  public:
    explicit HitWriter(std::shared_ptr<const LimitTable> table) : table_(std::move(table)) {}

    Result<void> write(sql::Connection& connection, Batch batch, sql::BatchTurn&) override;

  private:
    struct Row {
        bool needed{false};                 // The row must be there.
        std::optional<std::string> text{};  // As it is stored; none: it is not there.
        std::unique_ptr<StoredKey> key{};
    };
    using Rows = std::map<std::string_view, Row>;  // In the order of the locks.
    using Keys = std::vector<std::string_view>;

    /// The servers' clock; the later one if it is read several times.
    Result<std::int64_t> lock_rows(sql::Connection& connection, Rows& rows);
    Result<void> read(sql::Connection& connection, const Keys& keys, Rows& rows,
                      std::int64_t& now) const;
    void decide(std::span<const std::shared_ptr<sql::QueuedWrite>> batch, Rows& rows,
                std::int64_t now) const;
    Result<void> write_rows(sql::Connection& connection, const Rows& rows, std::int64_t now) const;
    Result<void> remove_expired(sql::Connection& connection, std::int64_t now,
                                std::size_t most) const;

    const std::shared_ptr<const LimitTable> table_;
    std::size_t inserted_{0};  // By the batch that is being written.
};

/// With a hint, if the table is missing.
Error explain_missing_limits(Error error);

}  // namespace hotcount
