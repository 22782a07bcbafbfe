// The statements of an add in a transaction of the application's own. They count in the same rows as
// slot_table.cpp's.
#include "slot_table.hpp"
#include "sql/session_statement.hpp"

#include <hotcount/detail/counter/session_statements.hpp>

namespace hotcount {

std::map<std::string, std::string> counter_session_statements(
    sql::Dialect dialect, const SlottedCounterOptions& options) {
    const sql::Grammar& g = dialect.grammar();
    const sql::Statements sql = slot_statements(options, g);
    std::map<std::string, std::string> made;
    const auto add = [&](const char* name, std::string_view statement) {
        made[name] = sql::session_statement(g, sql[statement], {"key", "slot", "n"});
    };
    add("add", "session_add");
    if (g.locks_rows()) add("update", "session_update");
    if (!g.session_mode().empty()) add("find", "session_find");
    add("sum", "sum");
    return made;
}

}  // namespace hotcount
