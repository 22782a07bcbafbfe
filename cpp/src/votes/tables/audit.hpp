// The statements of reconcile: they read and write items, their counts in every place, and their
// votes, a page in one statement.
//
// The functions run inside the caller's transaction. A page is a list of ids, because tables may sort
// ids by different collations, while all compare them alike. Thread-safe.
#pragma once

#include <array>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bulk_statement.hpp"
#include "layout.hpp"

namespace hotcount {

/// The numbers of an item, from one statement.
struct AuditedItem {
    sql::Id item;
    bool exists;           ///< It has a row.
    std::int64_t stored;   ///< In its row.
    std::int64_t cells;    ///< The sum of its cells, the opening balance among them.
    std::int64_t opening;  ///< That one alone.
    std::int64_t pending;  ///< The sum of its journal rows.
    bool asked;            ///< For a fold, by any row: that brings item.vote_count up to date.
    std::int64_t votes;    ///< The sum of its votes, and the opening balance.
    bool has_votes;        ///< Any of them is not 0.
};

class Audit {
  public:
    /// The most items of one look().
    static constexpr std::size_t kMost = 512;
    /// The most ids of one left_behind().
    static constexpr std::size_t kMostIds = 10'000;

    Audit(const VotesOptions& options, sql::Dialect dialect);

    struct Page {
        std::vector<AuditedItem> seen;
        std::vector<sql::Id> refused;  ///< Items whose numbers leave 64 bits.
    };
    /// At most kMost items. One without a row is seen if anything is left of it.
    Result<Page> look(sql::Connection& connection, std::span<const sql::Id> items);

    /// At most `most` ids, ascending, that follow `after`.
    Result<std::vector<sql::Id>> items(sql::Connection& connection,
                                       const std::optional<sql::Id>& after, std::size_t most) const;

    /// The tables that may have ids of deleted items: kTables of them.
    static constexpr std::size_t kTables = 4;
    struct Slice {
        std::vector<sql::Id> orphans;
        std::optional<sql::Id> last;  ///< The next slice begins behind it; nullopt: no more rows.
    };
    /// Among the next ids of that table, the ids without an item.
    Result<Slice> left_behind(sql::Connection& connection, std::size_t table,
                              const std::optional<sql::Id>& after, std::size_t most) const;

    using Difference = std::pair<sql::Id, std::int64_t>;
    /// A journal row for each.
    Result<void> append(sql::Connection& connection, std::span<const Difference> differences);
    /// Adds each to the item's own count.
    Result<void> add_to_items(sql::Connection& connection, std::span<const Difference> differences);

  private:
    Audit(const VotesOptions& options, const VoteNames& names, const VoteDialect& dialect);
    Audit(const VoteNames& names, const VoteDialect& dialect, const sql::Statements& sql);

    /// From the first id on, and from behind ?1; then the limit.
    struct Walk {
        /// `table` and its column of ids, if the statement is over any.
        Walk(const sql::Statements& sql, std::string_view name, const std::string& table = {},
             const std::string& key = {});
        sql::Statement first, next;
    };
    static Result<void> step(sql::Connection& connection, const Walk& walk,
                             const std::optional<sql::Id>& after, std::size_t most,
                             const sql::RowVisitor& visit);

    BulkStatement look_;  ///< ids -> as AuditedItem
    const Walk items_;
    const std::array<Walk, kTables> left_behind_;
    BulkStatement append_;
    BulkStatement add_;  ///< id, difference, ...
};

}  // namespace hotcount
