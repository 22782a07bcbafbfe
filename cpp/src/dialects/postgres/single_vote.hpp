// A vote as part of one PostgreSQL statement that commits by itself: the text, and what its row says.
//
// Such a statement returns the outcome of each vote. If a vote was not written, it says why: its item
// is missing or held, the vote is as asked already, or the counts are in another place. The old vote
// comes from the statement's snapshot. If the vote would change something in that snapshot, another
// transaction has changed it since, and the vote is written again: an answer never mixes two moments.
#pragma once

#include <array>
#include <atomic>
#include <hotcount/detail/sql/transaction.hpp>
#include <memory>
#include <string>

#include "votes/tables/vote_dialect.hpp"

namespace hotcount {

/// A statement over one vote: ?1 to ?4 are item, user, value and version. slotted counts in the slot ?5.
std::string single_vote(const VoteNames& names, const VotesOptions& options);

/// What became of a vote.
struct VoteOutcome {
    enum class Kind : std::uint8_t {
        cast,         ///< Written, or as asked already.
        held,         ///< Another transaction holds its item.
        missing,      ///< Its item does not exist.
        overtaken,    ///< To be written again.
        elsewhere,    ///< The tables' votes come another way: vote_route().
        other_level,  ///< The statement was not READ COMMITTED. Nothing was written by it.
    } kind;
    Cast cast{};
    std::string route{};  ///< Which, if it is elsewhere.
};
VoteOutcome read_outcome(const sql::Row& row, const Ballot& ballot, std::string_view route);

/// Where the vote's number stands in its row, and how many columns read_outcome() reads.
inline constexpr int kNumberColumn = 0;
inline constexpr int kOutcomeColumns = 9;

/// How often a vote may be overtaken. More often is no chance: a trigger or a policy keeps its row
/// from being written.
inline constexpr int kMostTries = 20;

/// What is wrong with a vote that was refused.
Error explain_postgres_vote(Error error, const VotesOptions& options, const Ballot& ballot);
/// The same of an error that may be a foreign key's.
Error explain_postgres_key(Error error, const VotesOptions& options, const Ballot& ballot);

/// slotted: the vote and its slot's cell in one statement.
class PostgresSlottedVotes final : public SingleVote {
  public:
    PostgresSlottedVotes(const VoteNames& names, const VotesOptions& options);
    Result<std::optional<Cast>> cast(sql::Database& database, const Ballot& ballot,
                                     std::int64_t slot, Deadline deadline) override;

  private:
    Result<VoteOutcome> attempt(sql::Database& database, const Ballot& ballot, std::int64_t slot,
                                Deadline deadline);

    const VotesOptions options_;
    const std::string route_;
    const sql::Statement of_users_;
    const sql::Statement anonymous_;
    const sql::Statement create_;
    std::atomic<bool> wraps_{false};  // Sessions default to another level of isolation.
};

}  // namespace hotcount
