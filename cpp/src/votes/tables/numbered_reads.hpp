// One SELECT for each of many items, in few statements: whole batches cross the link at once.
//
// Thread-safe.
#pragma once

#include <functional>
#include <hotcount/sql.hpp>
#include <optional>
#include <span>
#include <string>

#include "bulk_statement.hpp"

namespace hotcount {

struct VotesOptions;
class VoteDialect;

class NumberedReads {
  public:
    /// The SELECT of one item, `item` being SQL for its id.
    using Select = std::function<std::string(const std::string& item, const std::string& number)>;
    /// `index` is of the items that were given. Not called for an item that the SELECT finds nothing
    /// for.
    using Visit = std::function<Result<void>(std::size_t index, const sql::Row& row)>;

    /// The statement of that name is of the item {1}. Its first column is the number {2}, its others
    /// are the caller's. `sql` has votes/sql/parts.sql.
    NumberedReads(const VotesOptions& options, const VoteDialect& dialect,
                  const sql::Statements& sql, std::string_view name);

    /// One statement where the dialect has arrays, else one for each kMost items (without a server
    /// for each item). Of one snapshot if the transaction is.
    Result<void> run(sql::Connection& connection, std::span<const sql::Id> items,
                     const Visit& visit);

  private:
    const VoteDialect& dialect_;
    const std::optional<sql::Statement> of_array_;
    BulkStatement of_each_;
};

}  // namespace hotcount
