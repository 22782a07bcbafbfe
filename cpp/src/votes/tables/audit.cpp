#include "audit.hpp"

#include <algorithm>
#include <hotcount/detail/base/check.hpp>

#include "vote_dialect.hpp"

namespace hotcount {
namespace {

// What each table knows of the ids in a list, one row for each item; the other columns are 0. Then
// their sums: each number comes from one of the tables, so that no sum is new.
std::string look_text(const VotesOptions& options, const VoteNames& n, bool has_journal,
                      const std::string& list) {
    const auto part = [&](const std::string& table, const std::string& key,
                          const std::string& columns) {
        return " UNION ALL SELECT " + key + ", " + columns + " FROM " + table + " WHERE " + key +
               " IN (" + list + ") GROUP BY " + key;
    };
    const auto votes = [&](const std::string& table) {
        return part(table, n.vote_item,
                    "0, 0, 0, 0, 0, 0, SUM(" + n.value + "), COUNT(NULLIF(" + n.value + ", 0))");
    };
    // As the item's row spells it: to a column that ignores case the others may have another
    // spelling. (PostgreSQL has no MAX of UUIDs.)
    const std::string id = options.item_type == IdType::text
                               ? "COALESCE(MAX(CASE WHEN hc_there = 1 THEN hc_id END), MIN(hc_id))"
                               : "hc_id";
    return "SELECT " + id +
           ", SUM(hc_there), SUM(hc_stored), SUM(hc_cells), SUM(hc_opening), SUM(hc_pending), "
           "SUM(hc_rows), SUM(hc_votes), SUM(hc_live) FROM (SELECT hc_i." +
           n.id + " AS hc_id, 1 AS hc_there, " + n.own_count("hc_i") +
           " AS hc_stored, 0 AS hc_cells, 0 AS hc_opening, 0 AS hc_pending, 0 AS hc_rows, 0 AS "
           "hc_votes, 0 AS hc_live FROM " +
           n.item + " AS hc_i WHERE hc_i." + n.id + " IN (" + list + ")" +
           part(n.cell, "item",
                "0, 0, SUM(n), SUM(CASE WHEN slot = " + std::to_string(kOpeningSlot) +
                    " THEN n ELSE 0 END), 0, 0, 0, 0") +
           (has_journal ? part(n.journal, "item", "0, 0, 0, 0, SUM(diff), COUNT(*), 0, 0") : "") +
           votes(n.vote) + votes(n.anonymous_vote) + ") AS hc_u GROUP BY hc_id ORDER BY hc_id";
}

// ?1 to ?rows. The tables' ids may be of different widths.
std::string id_list(const VotesOptions& options, const sql::Grammar& g, std::size_t rows) {
    std::string list;
    for (std::size_t i = 1; i <= rows; ++i) {
        list += (i > 1 ? ", " : "") + id_parameter(g, placeholder(i), options.item_type);
    }
    return list;
}

std::string add_text(const VoteNames& n, const sql::Grammar& g, std::size_t rows) {
    std::string sum = "COALESCE(" + n.count + ", 0) + CASE " + n.id;
    for (std::size_t i = 0; i < rows; ++i) {
        sum += " WHEN " + placeholder(2 * i + 1) + " THEN CAST(" + placeholder(2 * i + 2) + " AS " +
               g.integer_cast() + ")";
    }
    sum += " END";
    return "UPDATE " + n.item + " SET " + n.count + " = " + sum + " WHERE " + n.id + " IN (" +
           SizedStatement::list(rows, 2) + ")" + g.and_fits(sum);
}

}  // namespace

Audit::Audit(const VotesOptions& options, sql::Dialect dialect)
    : Audit(options, VoteNames{options, dialect.grammar()}, vote_dialect(dialect)) {}

Audit::Audit(const VotesOptions& options, const VoteNames& n, const VoteDialect& d)
    : look_([options, n, journal = d.is_server(), &g = d.grammar()](std::size_t rows) {
          return look_text(options, n, journal, id_list(options, g, rows));
      }),
      after_(id_parameter(d.grammar(), "?1", options.item_type)),
      items_(walk(n.item, n.id, "hc_d.hc_id")),
      left_behind_([&] {
          const std::string there = "hc_d.hc_id, (SELECT COUNT(*) FROM " + n.item +
                                    " AS hc_i WHERE hc_i." + n.id + " = hc_d.hc_id)";
          return std::array<Walk, kTables>{walk(n.vote, n.vote_item, there),
                                           walk(n.anonymous_vote, n.vote_item, there),
                                           walk(n.cell, "item", there),
                                           // There is none without a server.
                                           walk(d.is_server() ? n.journal : n.cell, "item", there)};
      }()),
      append_(
          "INSERT INTO " + n.journal + " (item, diff) VALUES ",
          [](std::size_t first) {
              return "(" + placeholder(first) + ", " + placeholder(first + 1) + ")";
          },
          2, ", ", ""),
      add_([n, &g = d.grammar()](std::size_t rows) { return add_text(n, g, rows); }) {}

Audit::Walk Audit::walk(const std::string& table, const std::string& key,
                        const std::string& columns) const {
    const auto text = [&](const std::string& where, const std::string& limit) {
        return "SELECT " + columns + " FROM (SELECT DISTINCT " + key + " AS hc_id FROM " + table +
               where + " ORDER BY " + key + " LIMIT " + limit + ") AS hc_d ORDER BY hc_d.hc_id";
    };
    // Rows of the application's may be of no item.
    return {sql::Statement{text(" WHERE " + key + " IS NOT NULL", "?1")},
            sql::Statement{text(" WHERE " + key + " > " + after_, "?2")}};
}

Result<void> Audit::step(sql::Connection& connection, const Walk& walk,
                         const std::optional<sql::Id>& after, std::size_t most,
                         const sql::RowVisitor& visit) {
    const auto limit = static_cast<std::int64_t>(most);
    if (after) {
        HOTCOUNT_TRY(connection.query(walk.next, {sql::to_value(*after), limit}, visit));
    } else {
        HOTCOUNT_TRY(connection.query(walk.first, {limit}, visit));
    }
    return {};
}

Result<Audit::Page> Audit::look(sql::Connection& connection, std::span<const sql::Id> items) {
    Page page;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        for (int column = 1; column <= 8; ++column) {
            if (!row.is_integer(column)) {
                page.refused.push_back(row.id(0));
                return {};
            }
        }
        const auto votes = checked_add(row.integer(7), row.integer(4));
        if (!votes) {
            page.refused.push_back(row.id(0));
            return {};
        }
        page.seen.push_back({row.id(0), row.integer(1) > 0, row.integer(2), row.integer(3),
                             row.integer(4), row.integer(5), row.integer(6) > 0, *votes,
                             row.integer(8) > 0});
        return {};
    };
    HOTCOUNT_TRY(look_.run(connection, items, read));
    return page;
}

Result<std::vector<sql::Id>> Audit::items(sql::Connection& connection,
                                          const std::optional<sql::Id>& after,
                                          std::size_t most) const {
    std::vector<sql::Id> ids;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        ids.push_back(row.id(0));
        return {};
    };
    HOTCOUNT_TRY(step(connection, items_, after, most, read));
    return ids;
}

Result<Audit::Slice> Audit::left_behind(sql::Connection& connection, std::size_t table,
                                        const std::optional<sql::Id>& after,
                                        std::size_t most) const {
    Slice slice;
    std::size_t rows = 0;
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        ++rows;
        slice.last = row.id(0);
        if (row.integer(1) == 0) slice.orphans.push_back(row.id(0));
        return {};
    };
    HOTCOUNT_TRY(step(connection, left_behind_[table], after, most, read));
    if (rows < most) slice.last.reset();
    return slice;
}

Result<void> Audit::append(sql::Connection& connection, std::span<const Difference> differences) {
    std::vector<sql::Value> values;
    while (!differences.empty()) {
        const auto part = differences.first(BulkStatement::portion(differences.size()));
        differences = differences.subspan(part.size());
        values.clear();
        for (const auto& [item, difference] : part) {
            values.push_back(sql::to_value(item));
            values.emplace_back(difference);
        }
        auto appended = connection.run(append_.of(part.size()), values, nullptr);
        if (!appended) return std::move(appended).error();
    }
    return {};
}

Result<void> Audit::add_to_items(sql::Connection& connection,
                                 std::span<const Difference> differences) {
    constexpr std::size_t kCases = 64;  // Each row is compared with half of them.
    std::vector<sql::Value> values;
    while (!differences.empty()) {
        const auto part = differences.first(std::min(kCases, differences.size()));
        differences = differences.subspan(part.size());
        const std::size_t size = BulkStatement::padded(part.size());
        values.clear();
        for (std::size_t i = 0; i < size; ++i) {
            const auto& [item, difference] = part[std::min(i, part.size() - 1)];
            values.push_back(sql::to_value(item));
            values.emplace_back(difference);
        }
        auto added = connection.run(add_.of(size), values, nullptr);
        if (!added) return std::move(added).error();
    }
    return {};
}

}  // namespace hotcount
