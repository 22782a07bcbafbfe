// Votes as array parameters of one PostgreSQL statement, and the rows of its answer.
//
// Index i of every array belongs to vote i. A statement that commits by itself returns the outcome
// of each vote. For a vote that was not written it returns the reason: the item is missing or
// locked, the vote already has the value, or the counts are in another place. The old vote comes
// from the statement's snapshot. If the vote would change that snapshot's row, another transaction
// has changed the row since, and the vote is written again: an answer never mixes two moments.
#pragma once

#include <array>
#include <hotcount/detail/sql/dialect.hpp>
#include <span>
#include <string>
#include <vector>

#include "votes/tables/vote_writer.hpp"

namespace hotcount {

/// One statement's votes: at most one of a user for an item, sorted by (item, user).
struct PostgresBallots {
    explicit PostgresBallots(std::vector<QueuedVote*> of);

    /// ?1 to ?4, and the distinct items as ?5.
    std::array<sql::Value, 5> parameters() const {
        return {items, users, values, versions, distinct_items};
    }

    std::vector<QueuedVote*> votes;
    // Array literals: '{1,2,NULL}'.
    std::string items, users, values, versions;
    std::string distinct_items;
};

/// Splits votes into statements. A statement may not write a row twice, so a user's second vote for
/// an item goes into the second statement, and so on. `votes` are sorted by (item, user), and the
/// votes of one user are in order.
std::vector<PostgresBallots> in_waves(std::span<QueuedVote* const> votes);

/// Of a .sql file of this dialect, with the names of the tables and `more`, the types that the options
/// say and their strategy.
sql::Statements postgres_statements(std::string_view file, const VoteNames& names,
                                    const VotesOptions& options, sql::Names more = {});
/// The statements of catalog.sql, which needs no names.
sql::Statements postgres_catalog();

/// An array literal of the ids.
std::string array_literal(std::span<const sql::Id> ids);
/// The outcome of a written vote, from the columns prev and val, which begin at `column`.
Cast cast_of(const sql::Row& row, int column);
/// The outcome of a vote that was not changed.
Cast unchanged_cast(std::int64_t value);
/// The result of one vote of a statement that commits by itself.
struct VoteOutcome {
    enum class Kind : std::uint8_t {
        cast,         ///< Written, or the vote had the value already.
        held,         ///< Another transaction holds its item.
        missing,      ///< Its item does not exist.
        overtaken,    ///< Changed since the snapshot: to be written again.
        elsewhere,    ///< The tables have another vote_route().
        other_level,  ///< The isolation level was not the wanted one; nothing was written.
    } kind;
    Cast cast{};
    std::string route{};  ///< The tables' route, if `elsewhere`.
};
VoteOutcome read_outcome(const sql::Row& row, const Ballot& ballot, std::string_view route,
                         std::string_view wanted_level);

/// The column of the vote's number in a row, and the number of columns that read_outcome() reads.
inline constexpr int kNumberColumn = 0;
inline constexpr int kOutcomeColumns = 9;

/// The error for a row that belongs to no vote: a column has changed the value that it was given.
Error unasked_row();

class SyncPages;
std::unique_ptr<SyncPages> make_postgres_sync_pages(const VotesOptions& options,
                                                    const VoteNames& names);

class Journal;
std::unique_ptr<Journal> make_postgres_journal(std::shared_ptr<sql::Database> database,
                                               const VotesOptions& options);
std::unique_ptr<VoteWriter> make_postgres_vote_writer(std::shared_ptr<const Layout> layout,
                                                      const VotesOptions& options,
                                                      NoteAppended appended);

/// Matches rows that begin with (item, user) to the ballots, in the same order.
class BallotReader {
  public:
    explicit BallotReader(const PostgresBallots& ballots) : ballots_(ballots) {}
    /// The row's vote; null if none of the votes after the last match is the row's.
    QueuedVote* find(const sql::Row& row);
    /// To be called after the last row: the votes without a row.
    std::vector<QueuedVote*> unanswered();

  private:
    const PostgresBallots& ballots_;
    std::size_t next_{0};
    std::vector<QueuedVote*> unanswered_;
};

}  // namespace hotcount
