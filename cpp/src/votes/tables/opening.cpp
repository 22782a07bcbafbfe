#include "opening.hpp"

#include <array>

#include "hotcount_embedded/votes/sql.hpp"
#include "sql/dialect.hpp"
#include "vote_dialect.hpp"

namespace hotcount {
namespace {

std::string number_of(const sql::Row& row, int column) {
    return row.is_integer(column) ? std::to_string(row.integer(column))
                                  : std::string{row.text(column)};
}

}  // namespace

Openings::Differing Openings::differing(const VoteNames& n, const sql::Grammar& g,
                                        const Tables& tables) {
    const auto sql = vote_statements(vote_sql::kAdoptionSql, n, g,
                                     {{"has_votes", sql::flag(tables.vote)},
                                      {"has_anonymous", sql::flag(tables.anonymous)},
                                      {"has_cells", sql::flag(tables.cell)}});
    return {sql::Statement{sql["count_differing"]}, sql::Statement{sql["first_differing"]}};
}

Openings::Openings(const VotesOptions& options, sql::Dialect dialect)
    : Openings(options, VoteNames{options, dialect.grammar()}, vote_dialect(dialect)) {}

Openings::Openings(const VotesOptions& options, const VoteNames& n, const VoteDialect& d)
    : Openings(options, n, d, vote_statements(vote_sql::kAdoptionSql, n, d.grammar())) {}

Openings::Openings(const VotesOptions& options, const VoteNames& n, const VoteDialect& d,
                   const sql::Statements& sql)
    : options_(options),
      names_(n),
      dialect_(d),
      differing_(differing(n, d.grammar(), {true, true, true, true, true})),
      tables_(sql["find_tables"]),
      lock_marks_(sql["lock_marks"]),
      lock_items_(d.lock_items(n)),
      keep_(sql["keep_openings"]),
      too_large_(sql["too_large"]) {}

Result<Openings::Tables> Openings::find_tables(sql::Connection& connection) const {
    Tables tables{};
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        tables = {row.integer(0) > 0, row.integer(1) > 0, row.integer(2) > 0, row.integer(3) > 0,
                  row.integer(4) > 0};
        return {};
    };
    const auto votes = sql::TableName::of(options_.vote_table);
    const std::array names{sql::TableName::of(options_.item_table), votes,
                           votes.beside("_anonymous"), votes.beside("_cell"),
                           votes.beside("_meta")};
    std::vector<sql::Value> values;
    for (const sql::TableName& table : names) {
        values.emplace_back(std::string_view{table.schema});
        values.emplace_back(std::string_view{table.name});
    }
    HOTCOUNT_TRY(connection.run(tables_, values, &see));
    return tables;
}

Result<void> Openings::refuse_early(sql::Connection& connection, const Layout& layout,
                                    ExistingCounts existing) const {
    if (existing != ExistingCounts::refuse || !layout.counts_in_items) return {};
    HOTCOUNT_TRY_ASSIGN(const Tables tables, find_tables(connection));
    if (!tables.item) return {};
    if (tables.meta) {
        HOTCOUNT_TRY_ASSIGN(bool counted, is_counted(connection, layout));
        if (counted) return {};
        // Another process may be about to take them over.
        HOTCOUNT_TRY(connection.run_script(lock_marks_));
        HOTCOUNT_TRY_ASSIGN(counted, is_counted(connection, layout));
        if (counted) return {};
    }
    return refuse(connection, differing(names_, dialect_.grammar(), tables));
}

Result<void> Openings::check(sql::Connection& connection, ExistingCounts existing,
                             bool have_values) const {
    if (existing != ExistingCounts::refuse || names_.count.empty()) return {};
    HOTCOUNT_TRY_ASSIGN(const Tables tables, find_tables(connection));
    if (!tables.item) return {};
    VoteNames names{names_};
    if (!have_values) names.value = "1";
    return refuse(connection, differing(names, dialect_.grammar(), tables));
}

Result<void> Openings::settle(sql::Connection& connection, ExistingCounts existing) const {
    if (names_.count.empty()) return {};
    // The lock blocks counts by hand, so that the balance is of this moment.
    if (dialect_.is_server()) {
        HOTCOUNT_TRY(connection.query(lock_items_, {}, sql::kIgnoreRows));
    }
    switch (existing) {
        case ExistingCounts::refuse:
            return refuse(connection, differing_);
        case ExistingCounts::recount:
            return {};
        case ExistingCounts::keep:
            break;
    }
    HOTCOUNT_TRY(connection.execute(keep_));
    if (dialect_.grammar().sums_in_decimals()) return {};
    // Here a difference beyond 64 bits becomes a real, and no error.
    const sql::RowVisitor too_large = [](const sql::Row& row) -> Result<void> {
        return count_overflow(row.id(0));
    };
    HOTCOUNT_TRY(connection.query(too_large_, {}, too_large));
    return {};
}

Result<void> Openings::refuse(sql::Connection& connection, const Differing& differing) const {
    std::int64_t items = 0;
    const sql::RowVisitor count = [&](const sql::Row& row) -> Result<void> {
        items = row.integer(0);
        return {};
    };
    HOTCOUNT_TRY(connection.query(differing.count, {}, count));
    if (items == 0) return {};
    std::string example;
    const sql::RowVisitor name = [&](const sql::Row& row) -> Result<void> {
        example = "item " + sql::to_string(row.id(0)) + " counts " + number_of(row, 1) +
                  " and the sum of its votes is " + number_of(row, 2);
        return {};
    };
    HOTCOUNT_TRY(connection.query(differing.first, {}, name));
    return make_error(
        ErrorCode::config,
        "table " + options_.item_table + " has counts in " + options_.item_count +
            " that are not in its votes: " + std::to_string(items) +
            (items == 1 ? " item differs; " : " items differ; for example ") + example +
            ". existing_counts='keep' keeps each difference as an opening balance, "
            "existing_counts='recount' sets each count to its votes. Nothing was changed");
}

}  // namespace hotcount
