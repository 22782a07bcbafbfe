#include "sql_table.hpp"

#include <algorithm>
#include <bit>
#include <chrono>

namespace hotcount {
namespace {

std::string place(std::size_t number) { return "?" + std::to_string(number); }

// A list of `rows` groups of `each` placeholders, each group in parentheses if there are several.
std::string places(std::size_t rows, std::size_t each, std::string_view behind) {
    std::string list;
    for (std::size_t row = 0; row < rows; ++row) {
        list += row == 0 ? "(" : ", (";
        for (std::size_t i = 0; i < each; ++i)
            list += (i == 0 ? "" : ", ") + place(row * each + i + 1);
        list += std::string{behind} + ")";
    }
    return list;
}

std::string key_list(std::size_t rows) {
    std::string list;
    for (std::size_t row = 0; row < rows; ++row) list += (row == 0 ? "" : ", ") + place(row + 1);
    return list;
}

std::string limit_schema(const sql::TableName& table, const sql::Grammar& g) {
    const bool apart = g.creates_indexes_apart();
    const std::string index =
        sql::quote_identifier(table.name + std::string{LimitTable::kIndexSuffix});
    const std::string number = g.type(sql::ColumnType::integer) + " NOT NULL";
    // An index stands in its table's schema.
    return g.lock_schema() + "CREATE TABLE IF NOT EXISTS " + table.sql() + " (\"key\" " +
           g.type(sql::ColumnType::full_key) + " NOT NULL, state " +
           g.type(sql::ColumnType::long_text) + " NOT NULL, expires " + number +
           ", PRIMARY KEY (\"key\")" + (apart ? "" : ", KEY " + index + " (expires)") + ")" +
           g.table_end() + ";\n" +
           (apart ? "CREATE INDEX IF NOT EXISTS " + index + " ON " + table.sql() + " (expires);\n"
                  : "");
}

std::vector<LimitStatement> in_sizes(const auto& text_for) {
    std::vector<LimitStatement> sizes;
    for (const std::size_t rows : {64U, 16U, 4U, 1U}) {
        sizes.push_back({rows, sql::Statement{text_for(rows)}});
    }
    return sizes;
}

}  // namespace

LimitTable::LimitTable(std::string_view name, sql::Dialect dialect)
    : LimitTable(sql::TableName::of(name), dialect.grammar()) {}

LimitTable::LimitTable(const sql::TableName& table, const sql::Grammar& g)
    : schema(limit_schema(table, g)),
      lock(in_sizes([&](std::size_t rows) {
          return "SELECT \"key\", state, " + g.now_microseconds() + " FROM " + table.sql() +
                 g.by_primary_key() + " WHERE \"key\" IN (" + key_list(rows) +
                 ") ORDER BY \"key\"" + g.for_update();
      })),
      insert(in_sizes([&](std::size_t rows) {
          return "INSERT INTO " + table.sql() + " (\"key\", state, expires) VALUES " +
                 places(rows, 1, ", '', 0") + g.or_nothing("\"key\"");
      })),
      write(in_sizes([&](std::size_t rows) {
          return "INSERT INTO " + table.sql() + " (\"key\", state, expires) VALUES " +
                 places(rows, 3, "") + g.or_update("\"key\"") + "state = " + g.excluded("state") +
                 ", expires = " + g.excluded("expires");
      })),
      update("UPDATE " + table.sql() + " SET state = ?2, expires = ?3 WHERE \"key\" = ?1"),
      look("SELECT state, " + g.now_microseconds() + " FROM " + table.sql() +
           " WHERE \"key\" = ?1"),
      remove("DELETE FROM " + table.sql() + " WHERE \"key\" = ?1"),
      expired("SELECT \"key\" FROM " + table.sql() +
              " WHERE expires < ?1 ORDER BY expires LIMIT ?2" +
              (g.locks_rows() ? g.for_update() + " SKIP LOCKED" : "")),
      one_writer_(!g.locks_rows()) {}

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
