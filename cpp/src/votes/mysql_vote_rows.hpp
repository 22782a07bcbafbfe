// Votes on MariaDB and MySQL: rows of the vote table, and whole batches.
//
// An upsert keeps a row's old value in the row itself (prev = val), under the row's lock; what it
// was is read back afterwards, in the same transaction. Locks are taken in the order item, vote,
// cell, each sorted. Who will update the item's row takes it before the votes: the foreign key's
// check leaves a shared lock on it, and two that both want more than that would wait for each other.
#pragma once

#include <memory>
#include <vector>

#include "bulk_statement.hpp"
#include "vote_rows.hpp"

namespace hotcount {

/// What identifies rows in statements over many: how the columns of an existing table compare.
class KeyColumns {
  public:
    KeyColumns(const VotesOptions& options);
    /// Whether two ids that differ are two keys to item and vote table. Not so where a column
    /// compares letters without case, or ignores spaces at the end: there, votes are set one by
    /// one. Asked of the database once.
    Result<bool> are_bytes(sql::Connection& connection);

  private:
    const VotesOptions options_;
    const sql::Statement types_;
    std::atomic<int> known_{-1};
};

std::unique_ptr<VoteRows> make_mysql_vote_rows(std::shared_ptr<const Layout> layout,
                                               const VoteNames& names, const VotesOptions& options);
/// The writer of strategy batched.
std::shared_ptr<sql::BatchWriter> make_mysql_batch_writer(std::shared_ptr<const Layout> layout,
                                                          const VotesOptions& options);

/// The type of the item table's ids where it is there already, else empty. Columns that refer to them
/// are of that very type: a foreign key asks for it, and where ids are compared with them, another
/// character set has other bytes.
Result<std::string> mysql_item_type(sql::Connection& connection, const VotesOptions& options);

}  // namespace hotcount
