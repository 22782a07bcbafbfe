// The tables of a WriteBehindCounter in SQL (sql/views.sql). Thread-safe.
#pragma once

#include <cstdint>
#include <hotcount/sql.hpp>
#include <hotcount/write_behind_counter.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "view_cells.hpp"
#include "votes/tables/bulk_statement.hpp"

namespace hotcount {

/// How long the row of a cell stays in SQL after its writer began. A writer begins anew after a
/// seventh of it. A cell that reaches SQL later is refused, because its row would have said what of
/// it was counted: it stays in Redis, and the worker's rounds name it as at risk.
inline constexpr Duration kViewHorizon = std::chrono::hours{24 * 7};

/// A writer's id: the second in which it began, and random digits. It sorts by time.
std::string new_writer(const Clock& clock);
/// The id before which all writers began before that second, and the second of an id.
std::string first_writer_of(std::int64_t second);
std::int64_t second_of(std::string_view writer);

class ViewTables {
  public:
    ViewTables(const WriteBehindOptions& options, sql::Dialect dialect);

    const std::string& schema() const { return schema_; }  ///< Creates them; idempotent.

    /// In a transaction that writes: raises the rows of the cells, and the totals by the difference.
    /// Cells that are too old are left out; for each, whether it was. `cells`: sorted by key and
    /// writer, each once, with a writer.
    Result<std::vector<bool>> apply(sql::Connection& connection, std::span<const ViewCell> cells);

    /// The error for a new cell that apply() refuses. Its writer is new, so the clocks of this machine
    /// and the database disagree.
    static Error clock_is_behind();
    /// In the same kind of transaction, after apply(): sets the key's total to 0 by way of this cell,
    /// whose sum is 0 and whose writer has no other; returns what the total was.
    Result<std::int64_t> take_total(sql::Connection& connection, ViewCell by);

    /// What SQL has of each cell, in any order; nothing of one that it does not know.
    Result<std::vector<ViewCell>> applied(sql::Connection& connection,
                                          std::span<const ViewCell> cells);

    /// A key's total, and what SQL has of its cells: from one snapshot, which `connection` reads.
    /// Cells of writers below `first` may be in the total although they have no row.
    struct Known {
        std::int64_t total{0};
        std::vector<ViewCell> cells;
        std::string first;
    };
    Result<Known> read(sql::Connection& connection, std::string_view key,
                       std::span<const ViewCell> cells);
    /// Of several keys, in their order: each has the cells that are its own.
    Result<std::vector<Known>> read_many(sql::Connection& connection,
                                         std::span<const std::string> keys,
                                         std::span<const ViewCell> cells);

    /// Refuses cells of writers that began before that second, and longer ago than kViewHorizon by
    /// the database's clock. From then on their rows may go.
    Result<void> forget(sql::Connection& connection, std::int64_t before);
    /// Deletes some of those rows; returns how many.
    Result<std::size_t> purge(sql::Connection& connection);

  private:
    ViewTables(const sql::Statements& sql, const sql::Grammar& grammar);
    Result<std::int64_t> forgotten(sql::Connection& connection, const sql::Statement& how) const;
    static Result<std::optional<std::int64_t>> number(sql::Connection& connection,
                                                      const sql::Statement& how);
    Result<std::vector<bool>> apply_at_once(sql::Connection& connection,
                                            std::span<const ViewCell> cells);
    Result<void> add_to_totals(sql::Connection& connection,
                               std::span<const std::pair<std::string, std::int64_t>> sums);

    const std::string schema_;
    const sql::Statement hold_forgotten_;
    const sql::Statement read_forgotten_;
    const sql::Statement raise_forgotten_;
    const sql::Statement now_;
    const sql::Statement hold_total_;
    const sql::Statement old_cells_;
    const bool returns_;  // Whether raise_ has rows.
    const bool at_once_;  // Whether raise_and_add_ is to be had.
    BulkStatement raise_and_add_;
    BulkStatement raise_;
    BulkStatement differences_;
    BulkStatement applied_;
    BulkStatement add_;
    BulkStatement read_;
    BulkStatement totals_;
    BulkStatement remove_;
};

/// Sorts, and makes one of those of one key and writer.
void sort_and_merge(std::vector<ViewCell>& cells);

}  // namespace hotcount
