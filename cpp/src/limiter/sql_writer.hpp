// The table of the limiters of one database, with its statements, which are made once. And the
// writer of the hits of one group commit: one row for each key, locked in the order of the keys.
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

    /// Whether the database has one writer at a time, so that no other transaction locks a row.
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

/// This machine's clock, for SQLite, whose own reading of it is in milliseconds.
std::int64_t wall_us();

/// The `expires` of a row whose state ends at `ends_us`, rounded up to a multiple of a power of two
/// that is at least a minute and at least an eighth of the time left.
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
    const bool needs_row;                        // A look or a refund creates no row.
    const Apply apply;                           // Empty: a reset.
    Outcome outcome{};                           // Valid once the batch is written.
};

class HitWriter final : public sql::BatchWriter {
  public:
    explicit HitWriter(std::shared_ptr<const LimitTable> table) : table_(std::move(table)) {}

    Result<void> write(sql::Connection& connection, Batch batch, sql::BatchTurn&) override;

  private:
    struct Row {
        bool needed{false};                 // The row must be there.
        std::optional<std::string> text{};  // As stored; null: there is no row.
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
    std::size_t inserted_{0};  // Rows that the batch under way inserted.
};

/// Adds a hint to an error that says that the table is missing.
Error explain_missing_limits(Error error);

}  // namespace hotcount
