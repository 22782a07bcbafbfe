#include "audit.hpp"

#include <algorithm>
#include <hotcount/detail/base/check.hpp>

#include "hotcount_embedded/votes/sql.hpp"
#include "vote_dialect.hpp"

namespace hotcount {
namespace {

sql::Statements audit_statements(const VotesOptions& options, const VoteNames& n,
                                 const VoteDialect& d) {
    return vote_statements(vote_sql::kAuditSql, n, d.grammar(),
                           {{"has_journal", sql::flag(d.is_server())},
                            {"text_items", sql::flag(options.item_type == IdType::text)}});
}

}  // namespace

Audit::Audit(const VotesOptions& options, sql::Dialect dialect)
    : Audit(options, VoteNames{options, dialect.grammar()}, vote_dialect(dialect)) {}

Audit::Audit(const VotesOptions& options, const VoteNames& n, const VoteDialect& d)
    : Audit(n, d, audit_statements(options, n, d)) {}

Audit::Audit(const VoteNames& n, const VoteDialect& d, const sql::Statements& sql)
    : look_(sql["look"]),
      items_(sql, "items"),
      // There is no journal without a server.
      left_behind_{Walk{sql, "left_behind", n.vote, n.vote_item},
                   Walk{sql, "left_behind", n.anonymous_vote, n.vote_item},
                   Walk{sql, "left_behind", n.cell, "item"},
                   Walk{sql, "left_behind", d.is_server() ? n.journal : n.cell, "item"}},
      append_(sql["append"]),
      add_(sql["add_to_items"]) {}

Audit::Walk::Walk(const sql::Statements& sql, std::string_view name, const std::string& table,
                  const std::string& key)
    : first(sql.with(name, {{"after", ""}, {"table", table}, {"key", key}})),
      next(sql.with(name, {{"after", "1"}, {"table", table}, {"key", key}})) {}

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
    auto looked = look_.run_padded(connection, items, &read);
    if (looked) return page;
    // SQLite's SUM fails beyond 64 bits; those of servers have wider types.
    if (looked.error().code != ErrorCode::overflow) return std::move(looked).error();
    if (items.size() == 1) return Page{{}, {items.front()}};
    HOTCOUNT_TRY_ASSIGN(Page all, look(connection, items.first(items.size() / 2)));
    HOTCOUNT_TRY_ASSIGN(const Page rest, look(connection, items.subspan(items.size() / 2)));
    all.seen.insert(all.seen.end(), rest.seen.begin(), rest.seen.end());
    all.refused.insert(all.refused.end(), rest.refused.begin(), rest.refused.end());
    return all;
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
