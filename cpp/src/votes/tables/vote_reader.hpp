// Reads votes themselves, which stand in SQL with every strategy.
//
// Thread-safe. Each call is one statement, which sees one snapshot; get_many() of more than a page
// of items is several in one snapshot. A call that a replica may answer takes a Run, which chooses
// the session.
#pragma once

#include <functional>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <optional>
#include <span>
#include <vector>

#include "bulk_statement.hpp"
#include "layout.hpp"

namespace hotcount {

class VoteReader {
  public:
    VoteReader(const VotesOptions& options, sql::Dialect dialect);

    /// Runs one statement that reads.
    using Run = std::function<Result<void>(const sql::Statement&, std::span<const sql::Value>,
                                           const sql::RowVisitor&)>;
    /// Runs the statement as a transaction of its own.
    static Run alone(sql::Database& database, Deadline deadline);
    /// In the transaction that is open.
    static Run in(sql::Connection& connection);

    Result<std::int64_t> get(sql::Database& database, const sql::Id& item, const sql::Id& user,
                             Deadline deadline);
    Result<std::vector<std::int64_t>> get_many(sql::Database& database,
                                               std::span<const sql::Id> items, const sql::Id& user,
                                               Deadline deadline);
    Result<std::vector<Voter>> voters(const Run& run, const sql::Id& item,
                                      const std::optional<sql::Id>& after, std::size_t limit) const;
    Result<Tally> tally(const Run& run, const sql::Id& item) const;
    /// The n items of the highest item.vote_count, in descending order.
    Result<std::vector<sql::Id>> top(const Run& run, std::size_t n) const;

  private:
    VoteReader(const VotesOptions& options, const VoteNames& names, const VoteDialect& dialect);
    VoteReader(const VoteDialect& dialect, std::optional<sql::Statement> get_of_array,
               const sql::Statements& sql);
    Result<void> read_page(const Run& run, std::span<const sql::Id> items, const sql::Id& user,
                           std::vector<std::int64_t>& votes);

    const VoteDialect& dialect_;
    const sql::Statement get_;
    const std::optional<sql::Statement> get_of_array_;  ///< items, user -> val of each
    BulkStatement get_of_each_;                         ///< user, items -> one row of vals
    const sql::Statement first_voters_;
    const sql::Statement next_voters_;
    const sql::Statement tally_;
    const sql::Statement top_;
};

}  // namespace hotcount
