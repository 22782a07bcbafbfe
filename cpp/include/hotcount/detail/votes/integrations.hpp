// Statements for applications that vote in their own transaction, over connections of their own. The
// application chooses and orders them. try_fold() runs one fold of the journal and rolls it back, for
// `hotcount doctor`.
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/sql/dialect.hpp>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <map>
#include <memory>
#include <string>
#include <string_view>

namespace hotcount {

/// The checks that Votes::cast(), Votes::count() and Votes::get() make before they send anything: a
/// config error.
Result<void> check_ballot(const Ballot& ballot, const VotesOptions& options);
Result<void> check_item(const sql::Id& item, const VotesOptions& options);
Result<void> check_user(const sql::Id& user, const VotesOptions& options);

/// Statements by name, in the form of SQLAlchemy's text(): parameters are :item, :user, :value,
/// :version, :difference and :slot. Skip a statement that the map does not contain.
///
///   look         item -> the route (where the counts are), whether the item exists, and the
///                transaction's isolation. At READ COMMITTED no lock is needed: write_vote checks
///                the route again and writes nothing if it has changed
///   hold_route   item -> the route, locked until the transaction ends, whether the item exists,
///                and in MySQL the session's sql_mode. If a foreign key or lock_item finds a
///                missing item, hold_route reports every item as existing
///   add_item     item
///   lock_item    item -> a row if the item exists
///   write_vote   item, user, value, version -> prev, val unless there is read_vote
///   read_vote    item, user -> prev, val
///   note         item, difference: the journal's row, if write_vote has not written it
///   find_cell    item, slot -> 1 or NULL, and the session's sql_mode. For dialects in which an
///                update that finds no row locks the gap
///   bump_cell    difference, item, slot
///   insert_cell  difference, item, slot
///   bump_item    difference, item
///   ask_recount  item
///   count        item -> its count
///   vote         item, user -> val
///   votes        user, items (a list, which SQLAlchemy expands) -> item, val
///   voters       item, limit -> user, val; voters_after: item, after, limit -> the same
///
/// Two entries are not statements: `route`, the route that these statements expect, and `folds`,
/// present if the journal needs folding.
std::map<std::string, std::string> vote_session_statements(sql::Dialect dialect,
                                                           const VotesOptions& options,
                                                           bool anonymous);

// -- doctor's fold --------------------------------------------------------------------------------

struct FoldTrial {
    enum class Outcome : std::uint8_t {
        absent,   ///< There are no such tables, or their counts are not in a journal.
        works,    ///< A fold ran to its end.
        fails,    ///< The database refuses a fold.
        waits,    ///< Another session held the locks of a fold until the deadline.
        untried,  ///< The login may not vote, or the item table has another name or other columns.
    };
    Outcome outcome{Outcome::absent};
    std::string why{};  ///< The database's message; empty with absent and works.
};
std::string_view to_string(FoldTrial::Outcome outcome);

/// Appends a journal row for the first item and folds a page of the journal, as every process that
/// votes does, in a transaction that is rolled back. It holds the fold's lock and the rows of the
/// page's items for as long as one fold takes. Returns an error only if the database is unreachable.
Result<FoldTrial> try_fold(const std::shared_ptr<sql::Database>& database,
                           const VotesOptions& options, Deadline deadline);

}  // namespace hotcount
