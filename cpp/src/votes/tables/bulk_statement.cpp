#include "bulk_statement.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "count_place.hpp"
#include "hotcount_embedded/votes/sql.hpp"
#include "layout.hpp"
#include "vote_dialect.hpp"

namespace hotcount {

NumberedReads::NumberedReads(const VotesOptions& options, const VoteDialect& dialect,
                             const sql::Statements& sql, std::string_view name)
    : dialect_(dialect),
      of_array_(dialect.select_for_array(options,
                                         [&](const auto& item, const auto& number) {
                                             return sql.call(name, {item, number});
                                         })),
      of_each_(sql.call("for_each_row", {sql.call(name, {"?1", "#1"})})) {}

Result<void> NumberedReads::run(sql::Connection& connection, std::span<const sql::Id> items,
                                const Visit& visit) {
    std::size_t done = 0;
    std::size_t asked = 0;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        const auto index = static_cast<std::size_t>(row.integer(0)) - 1;
        if (index >= asked) return {};  // Repeated, to fill the statement up.
        return visit(done + index, row);
    };
    if (of_array_) {
        asked = items.size();
        const std::string array = dialect_.id_array(items);
        HOTCOUNT_TRY(
            connection.run(*of_array_, std::array<sql::Value, 1>{std::string_view{array}}, &see));
        return {};
    }
    for (; done < items.size(); done += asked) {
        asked = std::min(dialect_.most_counts(), items.size() - done);
        const auto values = BulkStatement::padded_values(items.subspan(done, asked));
        HOTCOUNT_TRY(connection.run(of_each_.of(values.size()), values, &see));
    }
    return {};
}

NewItems::NewItems(const VotesOptions& options, const VoteNames& n, const VoteDialect& dialect)
    : NewItems(dialect, dialect.create_items(options, n),
               vote_statements(vote_sql::kCountsSql, n, dialect.grammar())) {}

NewItems::NewItems(const VoteDialect& dialect, std::optional<sql::Statement> of_array,
                   const sql::Statements& sql)
    : dialect_(dialect),
      of_array_(std::move(of_array)),
      there_(sql["existing_items"]),
      insert_(sql["add_items"]) {}

Result<void> NewItems::add(sql::Connection& connection, std::span<const sql::Id> items) {
    if (of_array_) {
        const std::string array = dialect_.id_array(items);
        auto added =
            connection.run(*of_array_, std::array<sql::Value, 1>{std::string_view{array}}, nullptr);
        return added ? Result<void>{} : narrow_column(std::move(added).error());
    }
    std::vector<sql::Id> some;
    if (dialect_.grammar().or_nothing_locks()) {
        HOTCOUNT_TRY_ASSIGN(some, missing(connection, items));
        items = some;
    }
    std::vector<sql::Value> values;
    while (!items.empty()) {
        const auto part = items.first(BulkStatement::portion(items.size()));
        items = items.subspan(part.size());
        values.clear();
        for (const sql::Id& item : part) values.push_back(sql::to_value(item));
        if (auto added = connection.run(insert_.of(part.size()), values, nullptr); !added) {
            return narrow_column(std::move(added).error());
        }
    }
    return {};
}

Result<std::vector<sql::Id>> NewItems::missing(sql::Connection& connection,
                                               std::span<const sql::Id> items) {
    std::vector<sql::Id> found;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        found.push_back(row.id(0));
        return {};
    };
    HOTCOUNT_TRY(there_.run_padded(connection, items, &see));
    std::sort(found.begin(), found.end());
    std::vector<sql::Id> left;
    std::set_difference(items.begin(), items.end(), found.begin(), found.end(),
                        std::back_inserter(left));
    return left;
}

}  // namespace hotcount
