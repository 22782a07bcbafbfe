// Reads the counts of items from the place of the counts: exact, from one snapshot.
#pragma once

#include <atomic>
#include <functional>
#include <hotcount/sql.hpp>
#include <optional>
#include <span>
#include <vector>

#include "bulk_statement.hpp"
#include "layout.hpp"

namespace hotcount {

/// A SELECT of an item's number, its count, the place, and how many journal rows were summed, `item`
/// being SQL for its id.
std::string select_count(const VoteNames& names, const sql::Grammar& grammar, CountPlace place,
                         const std::string& item, const std::string& number);
/// The count of each of many items, for BulkStatement.
std::string select_counts(const VoteNames& names, const sql::Grammar& grammar, CountPlace place);

/// Thread-safe. Not for strategy cached, whose place is no table.
class CountReader {
  public:
    CountReader(const VotesOptions& options, sql::Dialect dialect);

    /// By index, of one snapshot; refuses tables whose counts are kept elsewhere. One statement on
    /// PostgreSQL, on MySQL one for each 512 items (64 if their ids are text), one for each on SQLite;
    /// a single statement is a transaction of its own, several share one. `summed`: journal rows that it took.
    Result<std::vector<std::int64_t>> read(sql::Database& database, std::span<const sql::Id> items,
                                           Deadline deadline, std::size_t& summed);
    /// As read(), in the caller's open transaction, which reads one snapshot.
    Result<std::vector<std::int64_t>> read_in(sql::Connection& connection,
                                              std::span<const sql::Id> items, std::size_t& summed);

  private:
    using Run = std::function<Result<void>(const sql::Statement&, std::span<const sql::Value>,
                                           const sql::RowVisitor&)>;
    bool takes_one_statement(std::size_t items) const;
    Result<std::vector<std::int64_t>> read(const Run& run_one, std::span<const sql::Id> items,
                                           std::size_t& summed);
    /// The counts of one portion of items; nullopt if the database spells one of the ids in another
    /// way.
    Result<std::optional<std::vector<std::int64_t>>> read_grouped(const Run& run_one,
                                                                  std::span<const sql::Id> items,
                                                                  std::size_t& summed);

    CountReader(const VotesOptions& options, const VoteNames& names, const VoteDialect& dialect);

    const VotesOptions options_;
    const VoteDialect& dialect_;
    const std::string_view place_;
    std::optional<sql::Statement> of_array_;  ///< items -> number, count, place.
    BulkStatement of_each_;                   ///< The same for each of many items.
    BulkStatement grouped_;  ///< items -> id, count, place, journal rows of items with any.
    /// PostgreSQL: whether the sessions' transactions are SERIALIZABLE by default. Ours are not:
    /// reads there would make the application's own fail.
    std::atomic<bool> serializable_{false};
};

}  // namespace hotcount
