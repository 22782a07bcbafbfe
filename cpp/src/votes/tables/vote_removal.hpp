// The statements that take votes out of the tables, several rows at a time.
//
// Each function runs inside the caller's transaction. The caller also moves the counts. Scans find
// rows without locks, so that they block no voter; the rows are then locked by their keys. Ids are
// given in the database's order, at most a page of them.
// Thread-safe.
#pragma once

#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "bulk_statement.hpp"
#include "layout.hpp"

namespace hotcount {

class VoteRemoval {
  public:
    /// Rows of one transaction. More: fewer commits, and voters wait longer for a row of the page.
    static constexpr std::size_t kPage = 500;
    /// Rows that one statement reads if no index finds the wanted ones.
    static constexpr std::size_t kSlice = 10'000;

    VoteRemoval(const VotesOptions& options, sql::Dialect dialect);

    /// A vote's primary key.
    using Key = std::pair<sql::Id, sql::Id>;
    /// A vote; `id` is the part of its key that the caller does not know.
    struct Row {
        sql::Id id;
        std::int64_t value;
        std::int64_t version;  ///< 0: no version.
    };
    struct Slice {
        std::vector<Key> found;
        std::optional<Key> last;  ///< The next slice begins behind it; nullopt: no more rows.
    };

    // -- of a user --------------------------------------------------------------------------------
    /// Whether an index begins with the user.
    Result<bool> has_user_index(sql::Connection& connection) const;
    /// The statement that makes one.
    const std::string& user_index() const { return user_index_; }
    /// The next page, after `after`, of items that the user has rows for. Needs such an index.
    Result<std::vector<sql::Id>> items_of(sql::Connection& connection, const sql::Id& user,
                                          const std::optional<sql::Id>& after) const;
    /// The user's votes among the next kSlice rows of the table.
    Result<Slice> slice_of(sql::Connection& connection, const sql::Id& user,
                           const std::optional<Key>& after) const;
    /// Locks the user's votes for the items.
    Result<std::vector<Row>> lock_of_user(sql::Connection& connection, const sql::Id& user,
                                          std::span<const sql::Id> items);
    Result<void> delete_of_user(sql::Connection& connection, const sql::Id& user,
                                std::span<const sql::Id> items);
    /// Locks the items' rows against transactions that update their counts.
    Result<void> lock_items(sql::Connection& connection, std::span<const sql::Id> items);

    // -- out of the counts, before the votes are deleted
    /// Takes a user's votes out of the items' own counts.
    Result<void> uncount_in_items(sql::Connection& connection, const sql::Id& user,
                                  std::span<const sql::Id> items);
    Result<void> uncount_in_journal(sql::Connection& connection, std::span<const Row> votes);
    /// For SQLite, which has no journal: takes them out of the cells of slot 0.
    Result<void> uncount_in_cells(sql::Connection& connection, std::span<const Row> votes);

    // -- of an item -------------------------------------------------------------------------------
    enum class Table : std::uint8_t { of_users, anonymous };
    /// No vote has a higher version.
    static constexpr std::int64_t kAll = std::numeric_limits<std::int64_t>::max();
    /// Locks the first `limit` votes for the item in that table that have a version up to `until`
    /// or no version.
    Result<std::vector<Row>> lock_of_item(sql::Connection& connection, Table table,
                                          const sql::Id& item, std::int64_t until,
                                          std::size_t limit) const;
    Result<void> delete_of_item(sql::Connection& connection, Table table, const sql::Id& item,
                                std::span<const Row> votes);
    /// Deletes up to `limit` votes for the item that have no user. Only an application's own table
    /// has such votes.
    struct WithoutUser {
        std::int64_t value;
        std::int64_t found, deleted;
    };
    Result<std::vector<WithoutUser>> delete_without_user(sql::Connection& connection,
                                                         const sql::Id& item,
                                                         std::size_t limit) const;
    /// Whether the item has committed votes.
    Result<bool> has_votes(sql::Connection& connection, const sql::Id& item) const;
    /// The count that the item must have.
    Result<std::int64_t> sum_of(sql::Connection& connection, const sql::Id& item) const;
    /// Blocks changes of the item's row until the transaction ends. False without a row.
    Result<bool> hold_item(sql::Connection& connection, const sql::Id& item) const;
    /// Blocks votes for the item as well.
    Result<bool> take_item(sql::Connection& connection, const sql::Id& item) const;
    enum class ItemLock : std::uint8_t { held, taken };  ///< By hold_item(), by take_item().
    /// Deletes the item's counts, not its votes. The caller has the locks of reconcile and folds. If
    /// the item has a row, its count becomes 0 (taken) or the sum of its committed votes (held).
    /// Returns a FoldedCount::ver above those of all earlier counts of the item.
    Result<std::int64_t> delete_counts(sql::Connection& connection, const sql::Id& item,
                                       bool has_row, ItemLock lock) const;
    Result<void> delete_item(sql::Connection& connection, const sql::Id& item) const;

    // -- retracted votes --------------------------------------------------------------------------
    /// Retracted votes older than version `before` among the next kSlice rows of the table.
    Result<Slice> retracted(sql::Connection& connection, std::int64_t before,
                            const std::optional<Key>& after) const;
    /// Deletes the votes of `keys` that are still retracted and older. Returns their number.
    Result<std::int64_t> delete_retracted(sql::Connection& connection, std::int64_t before,
                                          std::span<const Key> keys);

  private:
    struct OfItem {
        explicit OfItem(const sql::Statements& sql);
        const sql::Statement lock;
        BulkStatement remove;
    };
    struct Scan {
        Scan(const sql::Statements& sql, std::string_view name);
        /// `value`: the user or the version of the wanted rows.
        Result<Slice> run(sql::Connection& connection, const sql::Value& value,
                          const std::optional<Key>& after) const;
        const sql::Statement first, next;          ///< value (next: and `after`) -> keys
        const sql::Statement first_end, next_end;  ///< (next_end: `after`) -> the slice's last key
    };
    VoteRemoval(const VotesOptions& options, const VoteNames& names, const VoteDialect& dialect);
    VoteRemoval(const VotesOptions& options, const VoteDialect& dialect,
                const std::string& delete_without_user, const sql::Statements& sql,
                const sql::Statements& anonymous);
    OfItem& of(Table table) { return table == Table::of_users ? of_users_ : anonymous_; }
    const OfItem& of(Table table) const {
        return table == Table::of_users ? of_users_ : anonymous_;
    }

    const VotesOptions options_;
    const bool has_journal_;
    const std::string user_index_;
    const sql::Statement find_index_;
    const sql::Statement first_items_;
    const sql::Statement next_items_;
    BulkStatement lock_of_user_;
    BulkStatement delete_of_user_;
    BulkStatement lock_items_;
    BulkStatement uncount_items_;
    BulkStatement append_;
    BulkStatement add_to_cells_;
    OfItem of_users_;
    OfItem anonymous_;
    const sql::Statement find_without_user_;
    const sql::Statement delete_without_user_;
    const sql::Statement has_votes_;
    const sql::Statement sum_;
    const sql::Statement hold_item_;
    const sql::Statement take_item_;
    const sql::Statement next_ver_;
    const sql::Statement delete_journal_;
    const sql::Statement delete_cells_;
    const sql::Statement clear_count_;
    const sql::Statement recount_;
    const sql::Statement delete_item_;
    const Scan scan_of_user_;
    const Scan scan_retracted_;
    BulkStatement lock_retracted_;
    BulkStatement delete_retracted_;
};

}  // namespace hotcount
