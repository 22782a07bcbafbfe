#include "numbered_reads.hpp"

#include <algorithm>
#include <array>

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

}  // namespace hotcount
