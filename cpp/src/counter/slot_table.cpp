#include "slot_table.hpp"

#include <hotcount/detail/counter/session_statements.hpp>

#include "hotcount_embedded/counter/sql.hpp"
#include "sql/session_statement.hpp"

namespace hotcount {

namespace {

sql::Statements slot_statements(const SlottedCounterOptions& options, const sql::Grammar& g) {
    return {{sql::counter::kSlotsSql, g.words()},
            {{"table", sql::quote_identifier(options.table)},
             {"key", sql::quote_identifier(options.key_column)},
             {"slot", sql::quote_identifier(options.slot_column)},
             {"count", sql::quote_identifier(options.count_column)},
             {"op", sql::quote_identifier(options.table + "_op")},
             {"op_index", sql::quote_identifier(options.table + "_op_at")},
             {"indexes_apart", sql::flag(g.creates_indexes_apart())},
             {"locks_rows", sql::flag(g.locks_rows())},
             {"session_mode", std::string{g.session_mode()}}}};
}

}  // namespace

SlotTable::SlotTable(const SlottedCounterOptions& options, sql::Dialect dialect)
    : SlotTable(slot_statements(options, dialect.grammar()), !dialect.grammar().locks_rows()) {}

SlotTable::SlotTable(const sql::Statements& sql, bool one_writer)
    : schema(sql["schema"]),
      add(sql::repeat_rows(sql["add"], 1)),
      add_or_insert(sql::repeat_rows(sql["add_or_insert"], 1)),
      take_free(sql["take_free"]),
      find(sql["find"]),
      sum(sql["sum"]),
      lock_rows(sql["lock_rows"]),
      remove(sql["remove"]),
      remember_op(sql["remember_op"]),
      old_ops(sql["old_ops"]),
      forget_op(sql["forget_op"]),
      one_writer_(one_writer) {
    if (one_writer_) return;
    for (const std::size_t rows : {256U, 64U, 16U, 4U}) {
        add_rows.push_back({rows, sql::Statement{sql::repeat_rows(sql["add_or_insert"], rows)}});
    }
}

// Of an add in a transaction of the application's own, which counts in the same rows.
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
