#include "sql_table.hpp"

#include <algorithm>
#include <bit>
#include <chrono>

#include "hotcount_embedded/limiter/sql.hpp"

namespace hotcount {
namespace {

sql::Statements limit_statements(const sql::TableName& table, const sql::Grammar& g) {
    // An index stands in its table's schema.
    return {{sql::limiter::kLimitsSql, g.words()},
            {{"table", table.sql()},
             {"index", sql::quote_identifier(table.name + std::string{LimitTable::kIndexSuffix})},
             {"indexes_apart", sql::flag(g.creates_indexes_apart())},
             {"locks_rows", sql::flag(g.locks_rows())}}};
}

std::vector<LimitStatement> in_sizes(const std::string& text) {
    std::vector<LimitStatement> sizes;
    for (const std::size_t rows : {64U, 16U, 4U, 1U}) {
        sizes.push_back({rows, sql::Statement{sql::repeat_rows(text, rows)}});
    }
    return sizes;
}

}  // namespace

LimitTable::LimitTable(std::string_view name, sql::Dialect dialect)
    : LimitTable(limit_statements(sql::TableName::of(name), dialect.grammar()),
                 !dialect.grammar().locks_rows()) {}

LimitTable::LimitTable(const sql::Statements& sql, bool one_writer)
    : schema(sql["schema"]),
      lock(in_sizes(sql["lock"])),
      insert(in_sizes(sql["insert"])),
      write(in_sizes(sql["write"])),
      update(sql["update"]),
      look(sql["look"]),
      remove(sql["remove"]),
      expired(sql["expired"]),
      one_writer_(one_writer) {}

std::int64_t wall_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               system_clock()->wall_now().time_since_epoch())
        .count();
}

std::int64_t rounded_expiry(std::int64_t now_us, std::int64_t ends_us) {
    constexpr std::uint64_t kMinute = std::uint64_t{1} << 26;  // 67 s.
    const auto left = static_cast<std::uint64_t>(ends_us > now_us ? ends_us - now_us : 0);
    const auto grid = static_cast<std::int64_t>(std::bit_ceil(std::max(kMinute, left / 8)));
    return (ends_us / grid + 1) * grid;
}

}  // namespace hotcount
