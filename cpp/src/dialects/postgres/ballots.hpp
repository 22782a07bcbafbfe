// Votes as parameters of one PostgreSQL statement: arrays, a vote at each index.
#pragma once

#include <array>
#include <hotcount/detail/sql/dialect.hpp>
#include <span>
#include <string>
#include <vector>

#include "votes/tables/vote_rows.hpp"

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

/// The table of the parameters ?1 to ?4: items, users, values, versions, of the types that the
/// options say. Columns: item, voter, val, version, number.
std::string ballot_table(const VotesOptions& options);
/// "bigint" and the like: what an id is as a parameter.
const char* element_type(IdType type);
/// "CAST(?5 AS bigint[])" and the like.
std::string array_of(IdType type, const std::string& parameter);

/// An array literal of the ids.
std::string array_literal(std::span<const sql::Id> ids);
/// The statement that adds the items of the array ?1 which are not there, in order.
std::string create_items_text(const VoteNames& names, const VotesOptions& options);

/// INSERT INTO vote ... `rows`, a SELECT of item, user, val, 0, version ... ON CONFLICT ...: sets
/// votes, keeps what they were in prev, leaves alone what is as asked. RETURNING follows.
std::string upsert_votes(const VoteNames& names, const std::string& rows);
/// For RETURNING: what a vote was and is, as prev and val.
std::string old_and_new(const VoteNames& names);

/// What a row's prev and val, from `column` on, say of a vote that was written.
Cast cast_of(const sql::Row& row, int column);
/// A vote that stays as it is.
Cast unchanged_cast(std::int64_t value);
/// The error for a row that belongs to no vote: a column changes what it is given.
Error unasked_row();

/// The two numbers of the fold's advisory lock, an SQL text.
std::string fold_lock_key(const VoteNames& names);

class SyncPages;
std::unique_ptr<SyncPages> make_postgres_sync_pages(const VotesOptions& options,
                                                    const VoteNames& names);

class Journal;
std::unique_ptr<Journal> make_postgres_journal(std::shared_ptr<sql::Database> database,
                                               const VotesOptions& options);
std::unique_ptr<VoteRows> make_postgres_vote_rows(std::shared_ptr<const Layout> layout,
                                                  const VoteNames& names,
                                                  const VotesOptions& options);
std::shared_ptr<sql::BatchWriter> make_postgres_batch_writer(const VotesOptions& options,
                                                             NoteAppended appended = {});

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
