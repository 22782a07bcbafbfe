// The statements of an add in a transaction of the application's own. They count in the same rows as
// slot_table.cpp's.
#include "sql/session_statement.hpp"

#include <hotcount/detail/counter/session_statements.hpp>

namespace hotcount {

std::map<std::string, std::string> counter_session_statements(
    sql::Dialect dialect, const SlottedCounterOptions& options) {
    const sql::Grammar& g = dialect.grammar();
    const std::string table = sql::quote_identifier(options.table);
    const std::string key = sql::quote_identifier(options.key_column);
    const std::string slot = sql::quote_identifier(options.slot_column);
    const std::string count = sql::quote_identifier(options.count_column);
    const std::string row = " WHERE " + key + " = ?1 AND " + slot + " = ?2";
    const auto parameters = {std::string_view{"key"}, std::string_view{"slot"},
                             std::string_view{"n"}};
    std::map<std::string, std::string> made;
    const auto add = [&](const char* name, const std::string& text) {
        made[name] = sql::session_statement(g, text, parameters);
    };
    add("add", "INSERT INTO " + table + " (" + key + ", " + slot + ", " + count +
                   ") VALUES (?1, ?2, ?3)" + g.or_update(key + ", " + slot) + count + " = " +
                   g.checked_sum(table + "." + count, g.excluded(count)));
    // An upsert burns a value of a surrogate id, and may take gap locks in InnoDB.
    if (g.locks_rows()) {
        add("update",
            "UPDATE " + table + " SET " + count + " = " + g.checked_sum(count, "?3") + row);
    }
    if (!g.session_mode().empty()) {
        add("find", "SELECT (SELECT 1 FROM " + table + row + "), " + std::string{g.session_mode()});
    }
    add("sum", "SELECT COALESCE(SUM(" + count + "), 0) FROM " + table + " WHERE " + key + " = ?1");
    return made;
}

}  // namespace hotcount
