// Votes as parameters of one PostgreSQL statement, and as rows of its answer.
//
// Arrays have a vote at each index. A statement that commits by itself returns the outcome of each vote.
// If a vote was not written, it says why: its item is missing or held, the vote is as asked already, or
// the counts are in another place. The old vote comes from the statement's snapshot. If the vote would
// change something in that snapshot, another transaction has changed it since, and the vote is written
// again: an answer never mixes two moments.
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

/// A statement may not meet a row twice, so the second vote of a user for an item waits for the
/// second statement, and so on. `votes` are sorted by (item, user), those of one user in order.
std::vector<PostgresBallots> in_waves(std::span<QueuedVote* const> votes);

/// Of a .sql file of this dialect, with the names of the tables and `more`, the types that the options
/// say and their strategy.
sql::Statements postgres_statements(std::string_view file, const VoteNames& names,
                                    const VotesOptions& options, sql::Names more = {});
/// Of catalog.sql, which needs no names.
sql::Statements postgres_catalog();

/// An array literal of the ids.
std::string array_literal(std::span<const sql::Id> ids);
/// What a row's prev and val, from `column` on, say of a vote that was written.
Cast cast_of(const sql::Row& row, int column);
/// A vote that stays as it is.
Cast unchanged_cast(std::int64_t value);
/// What became of a vote.
struct VoteOutcome {
    enum class Kind : std::uint8_t {
        cast,         ///< Written, or as asked already.
        held,         ///< Another transaction holds its item.
        missing,      ///< Its item does not exist.
        overtaken,    ///< To be written again.
        elsewhere,    ///< The tables' votes come another way: vote_route().
        other_level,  ///< The statement was not of the wanted level of isolation, and wrote nothing.
    } kind;
    Cast cast{};
    std::string route{};  ///< Which, if it is elsewhere.
};
VoteOutcome read_outcome(const sql::Row& row, const Ballot& ballot, std::string_view route,
                         std::string_view wanted_level);

/// Where the vote's number stands in its row, and how many columns read_outcome() reads.
inline constexpr int kNumberColumn = 0;
inline constexpr int kOutcomeColumns = 9;

/// The error for a row that belongs to no vote: a column changes what it is given.
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

/// Visits rows that begin with (item, user) in the order of the ballots, and notes who had one.
class BallotReader {
  public:
    explicit BallotReader(const PostgresBallots& ballots) : ballots_(ballots) {}
    /// The row's vote; null if no vote from the last one on is the row's.
    QueuedVote* find(const sql::Row& row);
    /// After the last row: the votes that had none.
    std::vector<QueuedVote*> unanswered();

  private:
    const PostgresBallots& ballots_;
    std::size_t next_{0};
    std::vector<QueuedVote*> unanswered_;
};

}  // namespace hotcount
