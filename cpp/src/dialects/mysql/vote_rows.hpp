// Votes on MariaDB and MySQL: rows of the vote table, and whole batches.
//
// An upsert keeps a row's old value in the row itself (prev = val), under the row's lock. A read in
// the same transaction returns it. Locks are taken in the order item, vote, cell, each sorted. A
// transaction that will update the item's row locks it before the votes: the foreign key's check
// leaves a shared lock on it, and two transactions that want more would wait for each other.
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "sql/statements.hpp"
#include "sql/table_name.hpp"
#include "votes/tables/bulk_statement.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {

/// What identifies rows in statements over many: how the columns of an existing table compare.
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
/// What is wrong with a vote that was refused.
Error explain_mysql_vote(Error error, const VotesOptions& options, const Ballot& ballot);

/// A vote and its count in one statement, for batched (alone in its batch) and slotted; for servers
/// with compound statements.
class MysqlOneVote {
  public:
    explicit MysqlOneVote(const VotesOptions& options);
    /// In a transaction of its own, as run_alone(). False if nothing was done: the item is missing
    /// or (batched) held, counts are kept elsewhere, or the vote is as asked already. `cast`: the
    /// outcome of a new vote; changed for others.
    Result<bool> write(sql::Connection& connection, const Ballot& ballot, std::int64_t slot,
                       const sql::Alone& how, Cast& cast) const;

  private:
    const VotesOptions options_;
    const sql::Statement of_users_;
    const sql::Statement anonymous_;
};

std::unique_ptr<VoteRows> make_mysql_vote_rows(std::shared_ptr<const Layout> layout,
                                               const VoteNames& names, const VotesOptions& options);
std::shared_ptr<sql::BatchWriter> make_mysql_batch_writer(std::shared_ptr<const Layout> layout,
                                                          const VotesOptions& options,
                                                          NoteAppended appended);

/// strategy slotted, on servers with compound statements.
std::unique_ptr<SingleVote> make_mysql_single_vote(const VotesOptions& options);
std::unique_ptr<Journal> make_mysql_journal(std::shared_ptr<sql::Database> database,
                                            const VotesOptions& options);

/// The type of the item table's ids if that table exists already, else empty. Columns that refer to
/// them have the same type: a foreign key needs it, and an id in another character set has other
/// bytes.
Result<std::string> mysql_item_type(sql::Connection& connection, const VotesOptions& options);

}  // namespace hotcount
