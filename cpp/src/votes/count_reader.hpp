// Reads what items count, as the place of the counts has it: exact, of one snapshot.
#pragma once

#include <hotcount/sql/database.hpp>
#include <optional>
#include <span>
#include <vector>

#include "bulk_statement.hpp"
#include "layout.hpp"

namespace hotcount {

/// Thread-safe. Not for strategy cached, whose place is no table.
class CountReader {
  public:
    CountReader(const VotesOptions& options, sql::Dialect dialect);

    /// By index; refuses tables whose counts are kept elsewhere. In a transaction that reads one
    /// snapshot. One statement on PostgreSQL, one for each 64 items on MySQL, one for each on SQLite.
    Result<std::vector<std::int64_t>> read(sql::Connection& connection,
                                           std::span<const sql::Id> items);

  private:
    CountReader(const VotesOptions& options, const VoteNames& names, const sql::Grammar& grammar);

    const VotesOptions options_;
    const sql::Dialect dialect_;
    const std::string_view place_;
    std::optional<sql::Statement> of_array_;  ///< PostgreSQL: items -> number, count, place.
    BulkStatement of_each_;                   ///< The same of an item each.
};

}  // namespace hotcount
