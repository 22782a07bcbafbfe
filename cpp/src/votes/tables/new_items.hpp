// The rows of items that are not there yet, in few statements.
//
// Thread-safe.
#pragma once

#include <hotcount/sql.hpp>
#include <optional>
#include <span>
#include <vector>

#include "bulk_statement.hpp"

namespace hotcount {

struct VoteNames;
struct VotesOptions;
class VoteDialect;

class NewItems {
  public:
    NewItems(const VotesOptions& options, const VoteNames& names, const VoteDialect& dialect);

    /// Makes those of `items` that do not exist. `items` are in order and not repeated, or two that
    /// make the same ones wait for each other. One statement where the dialect has arrays, else one
    /// or two for each 512 items. Locks no item that exists, unless it exists as another text that
    /// the database takes for the same id.
    Result<void> add(sql::Connection& connection, std::span<const sql::Id> items);

  private:
    NewItems(const VoteDialect& dialect, std::optional<sql::Statement> of_array,
             const sql::Statements& sql);
    Result<std::vector<sql::Id>> missing(sql::Connection& connection,
                                         std::span<const sql::Id> items);

    const VoteDialect& dialect_;
    const std::optional<sql::Statement> of_array_;
    BulkStatement there_;
    BulkStatement insert_;
};

}  // namespace hotcount
