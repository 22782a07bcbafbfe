// The rows of a vote table on MariaDB and MySQL, for the writers of votes and for folds.
//
// An upsert keeps a row's old value in the row itself (prev = val), under the row's lock. A read in
// the same transaction returns it. Locks are taken in the order item, vote, cell, each sorted. A
// transaction that will update the item's row locks it before the votes: the foreign key's check
// takes a shared lock on it, and two transactions that upgrade such a lock deadlock.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "sql/dialect.hpp"
#include "sql/statements.hpp"
#include "votes/tables/bulk_statement.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {

/// The columns that identify rows in statements over many: how an existing table compares them.
class KeyColumns {
  public:
    KeyColumns(const VotesOptions& options);
    /// Whether two ids that differ are two keys in item and vote table. They are not if a column
    /// ignores case, or spaces at the end: then votes are set one by one. Asked of the database
    /// once.
    Result<bool> are_bytes(sql::Connection& connection);
    /// Whether both vote tables refer to the item table, so that no vote is stored for an item that
    /// is not there. Asked once.
    Result<bool> refer_to_items(sql::Connection& connection);

  private:
    const VotesOptions options_;
    const sql::TableName items_, votes_;
    const sql::Statement types_;
    const sql::Statement references_;
    std::atomic<int> known_{-1};
    std::atomic<int> refer_{-1};
};

/// Whether the server prepares BEGIN NOT ATOMIC: MariaDB does and MySQL does not. Asked once.
class CompoundStatements {
  public:
    Result<bool> known_to(sql::Connection& connection);

  private:
    std::atomic<int> known_{-1};
};

/// The statements of a file of this folder, over one vote table.
sql::Statements mysql_statements(std::string_view file, const VoteNames& names,
                                 const VotesOptions& options);
/// The items that a statement over ids finds, by the ids that they have here, sorted. `at_once`:
/// KeyColumns::are_bytes(); else one by one, because the column may give back another spelling.
Result<std::vector<sql::Id>> mysql_find(sql::Connection& connection, BulkStatement& statement,
                                        std::span<const sql::Id> items, bool at_once);
class SyncPages;
std::unique_ptr<SyncPages> make_mysql_sync_pages(const VotesOptions& options,
                                                 const VoteNames& names);

Cast mysql_cast(std::int64_t previous, std::int64_t value);
/// The error for a vote for an item that is not there.
Error mysql_missing_item(const Ballot& ballot);
/// The error of a refused vote, with the cause as far as it can be found.
Error explain_mysql_vote(Error error, const VotesOptions& options, const Ballot& ballot);

/// MySQL waits for a locked row for a second at least, unless a SELECT says NOWAIT. So a batch
/// first locks the existing votes.
class HeldVotes {
  public:
    HeldVotes(sql::Statements sql, const VotesOptions& options);
    Result<void> lock(sql::Connection& connection, std::span<QueuedVote* const> votes);

  private:
    Error forget_key(Error error);
    Result<std::shared_ptr<BulkStatement>> statement(sql::Connection& connection);

    const sql::Statements sql_;
    const std::string item_, user_;
    const sql::Statement keys_;
    std::mutex mutex_;
    std::shared_ptr<BulkStatement> lock_{};
};

/// The votes of one vote table.
class MysqlVoteRows {
  public:
    MysqlVoteRows(const VoteNames& names, const VotesOptions& options);

    /// The behaviour of a vote whose row another transaction has locked.
    enum class IfHeld : std::uint8_t {
        wait,  ///< Waits as long as the session does.
        fail,  ///< Fails with 1205 (MariaDB, at once), or 3572 (MySQL, if there are several).
    };
    /// In the caller's transaction.
    Result<Cast> set(sql::Connection& connection, const Ballot& ballot, IfHeld if_held);
    /// As VoteWriter::set_all(). `compound`: CompoundStatements::known_to().
    Result<void> set_all(sql::Connection& connection, std::span<QueuedVote* const> votes,
                         IfHeld if_held, bool compound);
    /// Writes vote and count in one compound statement, which is a transaction of its own: one
    /// round trip instead of four or five. False if nothing was done: the item is missing or
    /// (batched) locked, the counts are in another place, or the vote has the value already. `cast`
    /// is the outcome of a new vote on entry, and is changed if the vote exists.
    Result<bool> write_alone(sql::Connection& connection, const Ballot& ballot, std::int64_t slot,
                             const sql::Alone& how, Cast& cast) const;

  private:
    MysqlVoteRows(const sql::Statements& sql, const VotesOptions& options);
    BulkStatement& upsert(IfHeld if_held);
    Result<void> set_wave(sql::Connection& connection, std::span<QueuedVote* const> wave,
                          IfHeld if_held);
    Result<void> read_back(sql::Connection& connection, std::span<QueuedVote* const> part);

    const VotesOptions options_;
    KeyColumns keys_;
    HeldVotes held_;
    BulkStatement upsert_;
    BulkStatement upsert_unless_held_;
    BulkStatement read_;
    BulkStatement read_of_item_;
    const sql::Statement alone_;
};

std::unique_ptr<VoteWriter> make_mysql_vote_writer(std::shared_ptr<const Layout> layout,
                                                   const VotesOptions& options,
                                                   NoteAppended appended);
std::unique_ptr<Journal> make_mysql_journal(std::shared_ptr<sql::Database> database,
                                            const VotesOptions& options);

/// The type of the item table's ids if that table exists already, else empty. Columns that refer to
/// them must have it: a foreign key needs the same type, and an id has other bytes in another
/// character set.
Result<std::string> mysql_item_type(sql::Connection& connection, const VotesOptions& options);

}  // namespace hotcount
