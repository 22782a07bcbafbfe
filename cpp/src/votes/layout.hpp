// The tables of one Votes object, and the statements over them, made once.
#pragma once

#include <hotcount/sql/database.hpp>
#include <hotcount/votes/votes.hpp>
#include <string>

namespace hotcount {

/// Where a strategy keeps its counts. Two that differ cannot be mixed on the same tables without a
/// reconcile between them, so the tables remember it.
enum class CountPlace : std::uint8_t { item, cells, cache };

CountPlace count_place(VoteStrategy strategy);
std::string_view to_string(CountPlace place);

class Layout {
  public:
    explicit Layout(const VotesOptions& options);

    /// CREATE TABLE and CREATE VIEW statements, each doing nothing where it is done already.
    const std::string& schema() const { return schema_; }

    // Parameters in order, then the columns returned. None is an upsert that returns: SQLite opens
    // a statement journal for those, with a 64 KB allocation each, which took about half of the
    // time of writing votes. Reading first is as exact: a transaction here is the only writer.
    sql::Statement read_vote;       ///< item, user -> val, version
    sql::Statement insert_vote;     ///< item, user, val, version
    sql::Statement update_vote;     ///< item, user, val, version (null leaves the row's)
    sql::Statement add_item;        ///< item; nothing where it exists
    sql::Statement bump_item;       ///< difference, item; no row where it would leave 64 bits
    sql::Statement bump_cell;       ///< item, slot, difference; no row: absent, or 64 bits left
    sql::Statement insert_cell;     ///< item, slot, n; no row where it is there
    sql::Statement fold_item;       ///< item: vote_count = sum of its cells
    sql::Statement fold_lagging;    ///< the same for every item that lags
    sql::Statement set_item;        ///< count, item
    sql::Statement count_in_item;   ///< item -> vote_count
    sql::Statement count_in_cells;  ///< item -> sum of its cells
    sql::Statement audit_one;       ///< item -> id, vote_count, cells, votes
    sql::Statement audit_first;     ///< limit -> the same, by ascending id
    sql::Statement audit_after;     ///< id, limit -> the same, following that id
    sql::Statement items_first;     ///< limit -> id, ascending
    sql::Statement items_after;     ///< id, limit -> id, following that id
    sql::Statement read_place;      ///< -> where the counts of these tables are kept
    sql::Statement read_strategy;   ///< -> the strategy that create_tables was last called with
    sql::Statement write_marks;     ///< place, strategy

  private:
    struct Names;
    Layout(const VotesOptions& options, const Names& names);
    std::string schema_;
};

}  // namespace hotcount
