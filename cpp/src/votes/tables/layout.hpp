// The tables of one Votes object, and the statements over them, made once.
#pragma once

#include <atomic>
#include <cstdint>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <string>
#include <vector>

#include "count_place.hpp"
#include "sql/dialect.hpp"
#include "sql/statements.hpp"

namespace hotcount {

class VoteDialect;
namespace sql {
struct TableName;
}

/// The column that holds ids of that type.
sql::ColumnType column_type(IdType type);
/// A parameter that is compared with a column of ids. Its type is wide: an integer that a narrower
/// column cannot hold is not found, instead of an error.
std::string id_parameter(const sql::Grammar& grammar, std::string_view parameter, IdType type);

/// The names that statements over these tables are made of, quoted as they stand in SQL.
struct VoteNames {
    VoteNames(const VotesOptions& options, const sql::Grammar& grammar);
    /// The names with the table of votes without a user as the vote table: the call's op_id is its
    /// user, and the first vote under an op_id stands.
    VoteNames anonymous(const sql::Grammar& grammar) const;
    std::string item, id;                    ///< The item table and its key.
    std::string count;                       ///< The item table's count column, or empty.
    std::string vote, vote_item, vote_user;  ///< The vote table and its columns.
    std::string value, previous, version;    ///< Of both vote tables.
    std::string anonymous_vote, anonymous_user;
    std::string cell, live, meta;
    std::string journal;  ///< The table of (item, diff): differences that are not yet in a cell.
    std::string journal_index;       ///< In the journal's schema.
    std::string journal_index_name;  ///< Without it.
    std::string count_view;          ///< The view of (item, n): exact counts for plain SQL.
    std::string sync, recount;       ///< strategy cached: votes/cache/sync_table.hpp.
    /// The type of a column that holds such an id.
    std::string item_type, user_type;
    /// The vote tables reference the item table.
    bool foreign_key;
    /// The ids themselves, as PostgreSQL calls the type of a parameter.
    std::string_view item_parameter, user_parameter;

  private:
    VoteNames(const VotesOptions& options, const sql::Grammar& grammar,
              const sql::TableName& votes);
};

/// The names for .sql files: {item}, {vote_user} and so on; the slots {opening_slot} and
/// {fold_slot}; and the flags foreign_key, has_count, integer_items and integer_users.
sql::Names to_names(const VoteNames& names);
/// A file's statements with these names and `more`, the parts in votes/sql/parts.sql and the dialect's
/// words.
sql::Statements vote_statements(std::string_view file, const VoteNames& names,
                                const sql::Grammar& grammar, sql::Names more = {});

/// The condition for votes for item ?1 of value ?2 without a user. Only a table of the
/// application's own has such votes, and those of one value are alike.
std::string votes_without_user(const VoteNames& names);

/// The options for the table of votes without a user: as VoteNames::anonymous().
VotesOptions anonymous_options(VotesOptions options);

/// The slot of an item's opening balance (opening.hpp), and the slot that folds add to. Voters add
/// to slots from 0 on.
inline constexpr std::int64_t kOpeningSlot = -2;
inline constexpr std::int64_t kFoldSlot = -1;

/// The count that an item must have: the sum of its votes in both vote tables and its opening
/// balance.
std::string counted_sum(const VoteNames& names, const std::string& item);

/// `text` as an SQL literal.
std::string literal(const std::string& text);

/// The statements that set all counts of a place, and item.vote_count, from the votes, while votes
/// and folds are blocked.
std::string settle_text(const VoteNames& names, const VoteDialect& dialect, CountPlace place);

/// One of the tables and views, and the statements that make it. They do nothing if it is there.
struct SchemaPart {
    std::string name;  ///< As in SQL.
    std::string text;
    bool is_view;
};
std::vector<SchemaPart> schema_parts(const VoteNames& names, const VoteDialect& dialect);
/// All of them.
std::string schema_text(const VoteNames& names, const VoteDialect& dialect);

class Layout {
  public:
    Layout(const VotesOptions& options, sql::Dialect dialect);

    const std::string& schema() const { return schema_; }
    sql::Dialect dialect() const;
    const VoteDialect& vote_dialect() const { return dialect_; }

    /// Whether the item table has a column for the count. Without it the statements over it are
    /// not to be used: bump_item, fold_item, fold_lagging.
    bool counts_in_items;

    // Parameters in order, then the columns returned.
    sql::Statement add_item;         ///< item; nothing if it exists
    sql::Statement bump_item;        ///< difference, item; no change: absent, or overflow
    sql::Statement bump_cell;        ///< item, slot, difference; no change: absent, or overflow
    sql::Statement insert_cell;      ///< item, slot, n; nothing if it exists
    sql::Statement fold_item;        ///< item: vote_count = sum of its cells
    sql::Statement fold_lagging;     ///< fold_item for all lagging items; MySQL: -> their ids
    sql::Statement lock_item;        ///< item: its row, locked until the commit
    sql::Statement keep_item;        ///< item: its row, not to be deleted until the commit
    sql::Statement reconcile_alone;  ///< waits for other reconciles and folds
    sql::Statement note_settling;    ///< that a reconcile corrects counts
    sql::Statement count_in_item;    ///< item -> vote_count
    sql::Statement append;           ///< item, difference: a journal row
    sql::Statement read_place;       ///< -> the place of these tables' counts
    sql::Statement read_route;       ///< -> the vote route of these tables
    sql::Statement hold_route;       ///< read_route, locked (shared) until the commit
    sql::Statement hold_fence;       ///< -> stream_fence, locked (shared) until the commit
    sql::Statement read_strategy;    ///< -> the strategy that create_tables was last called with
    sql::Statement read_folded;      ///< -> when the last fold began
    sql::Statement write_marks;      ///< place, strategy, route; and the database's clock
    sql::Statement read_move;        ///< -> the move after which other nodes' votes may be missing
    sql::Statement forget_move;      ///< that move

    /// item, user -> value, previous, version of a vote, whose row is locked until the commit
    sql::Statement lock_vote;
    sql::Statement lock_anonymous_vote;

    sql::Statement find_table;  ///< schema, name -> how many tables or views are called so, of ours

    /// The place of the counts with these options.
    CountPlace place() const { return place_; }
    /// To be called in the transaction that writes or deletes votes.
    Result<CountedByTriggers> counted_by_triggers(sql::Connection& connection) const;

    /// Keeps everybody from folding until the transaction ends; comes before lock_all. A script.
    std::string lock_fold;
    /// Keeps everybody from voting and from moving the counts until the transaction ends.
    std::string lock_all;
    /// Sets all counts of this place, and item.vote_count, from the votes. Under the locks of votes
    /// and folds.
    std::string settle;

  private:
    Layout(const VotesOptions& options, const VoteNames& names, const VoteDialect& dialect);
    Layout(const VotesOptions& options, const VoteNames& names, const VoteDialect& dialect,
           const sql::Statements& counts, const sql::Statements& marks);
    const VotesOptions options_;
    mutable std::atomic<std::int64_t> triggers_seen_{0};
    CountPlace place_;
    const VoteDialect& dialect_;
    std::string schema_;
};

}  // namespace hotcount
