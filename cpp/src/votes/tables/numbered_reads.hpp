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
    /// Makes the SELECT of one item, `item` being SQL for its id. Its first column is `number`, its
    /// others are the caller's.
    using Select = std::function<std::string(const std::string& item, const std::string& number)>;
    /// `index` is of the items that were given. Not called for an item that the SELECT finds nothing
    /// for.
    using Visit = std::function<Result<void>(std::size_t index, const sql::Row& row)>;

    NumberedReads(const VotesOptions& options, const VoteDialect& dialect, const Select& select);

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
