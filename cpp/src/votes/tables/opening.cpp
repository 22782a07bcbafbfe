#include "opening.hpp"

#include <array>

#include "sql/table_name.hpp"
#include "vote_dialect.hpp"

namespace hotcount {
namespace {

std::string count_of(const VoteNames& n) { return n.own_count("hc_i"); }

// An item that counts nothing yet, NULL or 0, has no history that its votes could contradict: a
// column that was added for hotcount beside votes that were there. Its votes are counted.
std::string differs(const VoteNames& n, const std::string& owed) {
    return count_of(n) + " <> 0 AND " + count_of(n) + " <> " + owed;
}

std::string keep(const VoteNames& n, const sql::Grammar& g) {
    const std::string owed = counted_sum(n, "hc_i." + n.id);
    return "INSERT INTO " + n.cell + " (item, slot, n, ver) SELECT hc_i." + n.id + ", " +
           std::to_string(kOpeningSlot) + ", " + count_of(n) + " - " + owed + ", 1 FROM " + n.item +
           " AS hc_i WHERE " + differs(n, owed) + g.or_update("item, slot") +
           "n = " + g.own(n.cell, "n") + " + " + g.excluded("n");
}

std::string find_tables(const sql::Grammar& g) {
    std::string text = "SELECT ";
    for (int number = 1; number <= 5; ++number) {
        text +=
            (number > 1 ? ", (" : "(") +
            g.find_table("?" + std::to_string(2 * number - 1), "?" + std::to_string(2 * number)) +
            ")";
    }
    return text;
}

std::string number_of(const sql::Row& row, int column) {
    return row.is_integer(column) ? std::to_string(row.integer(column))
                                  : std::string{row.text(column)};
}

}  // namespace

Openings::Differing Openings::differing(const VoteNames& n, const Tables& tables) {
    // Summed once for all items: the application's table may have no index by item.
    const auto votes_of = [&](const std::string& table) {
        return "SELECT " + n.vote_item + " AS item, " + n.value + " AS n FROM " + table;
    };
    std::string votes;
    if (tables.vote) votes = votes_of(n.vote);
    if (tables.anonymous) {
        votes += (votes.empty() ? "" : " UNION ALL ") + votes_of(n.anonymous_vote);
    }
    const std::string id = "hc_i." + n.id;
    std::string from = " FROM " + n.item + " AS hc_i";
    if (!votes.empty()) {
        from += " LEFT JOIN (SELECT item, SUM(n) AS n FROM (" + votes +
                ") AS hc_v GROUP BY item) AS hc_s ON hc_s.item = " + id;
    }
    votes = votes.empty() ? "0" : "COALESCE(hc_s.n, 0)";
    const std::string owed = tables.cell ? "(" + votes + " + " + opening_of(n, id) + ")" : votes;
    const std::string where = from + " WHERE " + differs(n, owed);
    return {sql::Statement{"SELECT COUNT(*)" + where},
            sql::Statement{"SELECT " + id + ", " + count_of(n) + ", " + votes + where +
                           " ORDER BY " + id + " LIMIT 1"}};
}

Openings::Openings(const VotesOptions& options, sql::Dialect dialect)
    : Openings(options, VoteNames{options, dialect.grammar()}, vote_dialect(dialect)) {}

Openings::Openings(const VotesOptions& options, const VoteNames& n, const VoteDialect& d)
    : options_(options),
      names_(n),
      dialect_(d),
      differing_(differing(n, {true, true, true, true, true})),
      tables_(hotcount::find_tables(d.grammar())),
      lock_items_(d.lock_items(n)),
      keep_(hotcount::keep(n, d.grammar())),
      too_large_("SELECT item FROM " + n.cell + " WHERE slot = " + std::to_string(kOpeningSlot) +
                 " AND typeof(n) <> 'integer' LIMIT 1") {}

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
        HOTCOUNT_TRY(connection.run_script("SELECT value FROM " + names_.meta +
                                           " ORDER BY name FOR UPDATE;\n"));
        HOTCOUNT_TRY_ASSIGN(counted, is_counted(connection, layout));
        if (counted) return {};
    }
    return refuse(connection, differing(names_, tables));
}

Result<void> Openings::check(sql::Connection& connection, ExistingCounts existing,
                             bool have_values) const {
    if (existing != ExistingCounts::refuse || names_.count.empty()) return {};
    HOTCOUNT_TRY_ASSIGN(const Tables tables, find_tables(connection));
    if (!tables.item) return {};
    VoteNames names{names_};
    if (!have_values) names.value = "1";
    return refuse(connection, differing(names, tables));
}

Result<void> Openings::settle(sql::Connection& connection, ExistingCounts existing) const {
    if (names_.count.empty()) return {};
    // Who counts by hand meanwhile waits: the balance is of this very moment.
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
