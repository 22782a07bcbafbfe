// The place of the counts: where the tables keep what each item counts.
//
// Each strategy has its place. Two strategies with different places cannot vote over the same
// tables: a vote counted in the one place is missing in the other. So the tables remember their
// place in a mark, the row 'counted_in' of vote_meta, and every transaction compares that mark with
// its own place; one that writes votes compares 'vote_route'. create_tables() moves the counts and
// both marks.
//
// The functions run inside the caller's transaction, and work on the counts in their places.
#pragma once

#include <cstdint>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <string>
#include <string_view>

namespace hotcount {

class Layout;

enum class CountPlace : std::uint8_t {
    item,     ///< In the item's own row.
    cells,    ///< The sum of the item's cells: on SQLite slotted, and batched where the items have
              ///< no column for counts.
    journal,  ///< The sum of its cells and of its journal rows.
    cache,    ///< In memory or Redis; the sum of the votes is the truth.
};
std::string_view to_string(CountPlace place);

CountPlace count_place(const VotesOptions& options, sql::Dialect dialect);

/// How votes reach the tables: the place of their counts, or with strategy write_behind its
/// streams. It is the mark 'vote_route', which every statement that writes or deletes votes
/// compares: while votes may wait in streams, no other route writes.
std::string vote_route(CountPlace place, VoteStrategy strategy);
std::string vote_route(const VotesOptions& options, sql::Dialect dialect);

/// Which of our own writes the triggers on the vote tables count, so that the writer must not: see
/// OutsideTriggers::ours().
struct CountedByTriggers {
    bool votes{false}, deletes{false};
    bool anonymous_votes{false}, anonymous_deletes{false};
    bool has(const Ballot& ballot) const { return ballot.by_op_id ? anonymous_votes : votes; }
};

// -- the mark -----------------------------------------------------------------------------------

/// The value that a statement over one mark returns; empty if the mark is missing.
Result<std::string> read_mark(sql::Connection& connection, const sql::Statement& statement);

/// Whether the tables have a place: create_tables() has finished once, with any strategy.
Result<bool> is_counted(sql::Connection& connection, const Layout& layout);

/// Refuses tables whose counts are in another place or, when votes are written, tables of another
/// route. Every transaction checks, because another process may switch the strategy while this one
/// runs. `hold_route` keeps the mark until the transaction ends; voters need that, unless the
/// dialect's lock_all() waits for them by itself.
enum class PlaceCheck : std::uint8_t { counts, route, hold_route };
Result<void> check_place(sql::Connection& connection, const Layout& layout,
                         const VotesOptions& options, PlaceCheck check = PlaceCheck::counts);

/// Whether marks are of a removed format: without a route, or with a server's counts in cells.
bool is_removed_format(std::string_view place, std::string_view route, sql::Dialect dialect);
Error removed_format(const VotesOptions& options, std::string_view place);

/// The error of check_place(). `found`: a place or a route.
Error wrong_place(const VotesOptions& options, std::string_view found, sql::Dialect dialect);

/// Adds a hint at create_tables() to the error of a missing table.
Error explain_missing_table(Error error);

// -- the counts ---------------------------------------------------------------------------------

/// Creates the item's row first if the options say so.
Result<void> ensure_item(sql::Connection& connection, const Layout& layout, MissingItem missing,
                         const sql::Id& item);

/// An error if the item has no row: cells would accept its votes.
Result<void> require_item(sql::Connection& connection, const Layout& layout, const sql::Id& item);

/// Adds to one cell; an overflow error if the count would leave 64 bits.
Result<void> bump_cell(sql::Connection& connection, const Layout& layout, const sql::Id& item,
                       std::int64_t slot, std::int64_t difference);

/// Adds to the item's own count; an error if it would leave 64 bits, or if the item does not exist.
Result<void> bump_item(sql::Connection& connection, const Layout& layout, const sql::Id& item,
                       std::int64_t difference);

/// The error for a count that would leave 64 bits.
Error count_overflow(const sql::Id& item);

/// Turns the overflow of a column that is narrower than 64 bits into a database error, with its
/// code: the count itself did not overflow.
Error narrow_column(Error error);

/// The error for a vote for an item that does not exist, when no foreign key refused it.
Error unknown_item(const sql::Id& item);

}  // namespace hotcount
