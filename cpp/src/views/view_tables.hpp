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

/// How long the row of a cell stays in SQL after its writer began. A writer takes a new id after a
/// seventh of it. A cell that reaches SQL later is refused, because the row with its counted part
/// is deleted: the cell stays in Redis, and the worker's rounds name it as at risk.
inline constexpr Duration kViewHorizon = std::chrono::hours{24 * 7};

/// A writer's id: the second in which the writer began, and random digits. Ids sort by time.
std::string new_writer(const Clock& clock);
/// The lowest id of writers that began in that second; and the second of an id.
std::string first_writer_of(std::int64_t second);
std::int64_t second_of(std::string_view writer);

class ViewTables {
  public:
    ViewTables(const WriteBehindOptions& options, sql::Dialect dialect);

    const std::string& schema() const { return schema_; }  ///< CREATE statements; idempotent.

    /// In a transaction that writes: raises the rows of the cells, and the totals by the
    /// difference. Cells that are too old are left out; the result says which. `cells`: with
    /// writers, sorted by key and writer, each once.
    Result<std::vector<bool>> apply(sql::Connection& connection, std::span<const ViewCell> cells);

    /// The error if apply() refuses a cell of a new writer: the clocks of this machine and the
    /// database disagree.
    static Error clock_is_behind();
    /// In such a transaction, after apply(): sets the key's total to 0 through cell `by`, whose sum
    /// is 0 and whose writer has no other cell; returns the former total.
    Result<std::int64_t> take_total(sql::Connection& connection, ViewCell by);

    /// The stored sums of the cells, in any order; unknown cells are left out.
    Result<std::vector<ViewCell>> applied(sql::Connection& connection,
                                          std::span<const ViewCell> cells);

    /// A key's total and the stored sums of its cells, from the snapshot of `connection`. Cells of
    /// writers below `first` may be in the total without a row.
    struct Known {
        std::int64_t total{0};
        std::vector<ViewCell> cells;
        std::string first;
    };
    Result<Known> read(sql::Connection& connection, std::string_view key,
                       std::span<const ViewCell> cells);
    /// read() of several keys, in their order, each with its own cells.
    Result<std::vector<Known>> read_many(sql::Connection& connection,
                                         std::span<const std::string> keys,
                                         std::span<const ViewCell> cells);

    /// From now on refuses cells of writers that began before the second `before` and, by the
    /// database's clock, longer ago than kViewHorizon. purge() may then delete their rows.
    Result<void> forget(sql::Connection& connection, std::int64_t before);
    /// Deletes some rows of writers that forget() refuses. Returns their number.
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
    const bool returns_;  // raise_ returns rows.
    const bool at_once_;  // The dialect has raise_and_add_.
    BulkStatement raise_and_add_;
    BulkStatement raise_;
    BulkStatement differences_;
    BulkStatement applied_;
    BulkStatement add_;
    BulkStatement read_;
    BulkStatement totals_;
    BulkStatement remove_;
};

/// Sorts the cells, and merges cells of the same key and writer.
void sort_and_merge(std::vector<ViewCell>& cells);

}  // namespace hotcount
