#include "slot_table.hpp"

namespace hotcount {

// All names quoted, as they stand in SQL.
struct SlotTable::Names {
    explicit Names(const SlottedCounterOptions& options)
        : table(sql::quote_identifier(options.table)),
          key(sql::quote_identifier(options.key_column)),
          slot(sql::quote_identifier(options.slot_column)),
          count(sql::quote_identifier(options.count_column)),
          op(sql::quote_identifier(options.table + "_op")),
          op_index(sql::quote_identifier(options.table + "_op_at")) {}
    std::string table, key, slot, count, op, op_index;
};

namespace {

std::string skip_locked(const sql::Grammar& g) {
    return g.locks_rows() ? g.for_update() + " SKIP LOCKED" : "";
}

}  // namespace

SlotTable::SlotTable(const SlottedCounterOptions& options, sql::Dialect dialect)
    : SlotTable(Names{options}, dialect.grammar()) {}

namespace {

template <class Names>
std::string schema_text(const Names& n, const sql::Grammar& g) {
    const std::string number = g.type(sql::ColumnType::integer);
    const std::string text = g.type(sql::ColumnType::text);
    const bool apart = g.creates_indexes_apart();
    return g.lock_schema() + "CREATE TABLE IF NOT EXISTS " + n.table + " (" + n.key + " " + text +
           " NOT NULL, " + n.slot + " " + number + " NOT NULL, " + n.count + " " + number +
           " NOT NULL, PRIMARY KEY (" + n.key + ", " + n.slot + "))" + g.table_end() +
           ";\n"
           "CREATE TABLE IF NOT EXISTS " +
           n.op + " (\"key\" " + text + " NOT NULL, op_id " + text + " NOT NULL, at " + number +
           " NOT NULL, PRIMARY KEY (\"key\", op_id)" +
           (apart ? "" : ", KEY " + n.op_index + " (at)") + ")" + g.table_end() + ";\n" +
           (apart ? "CREATE INDEX IF NOT EXISTS " + n.op_index + " ON " + n.op + " (at);\n" : "");
}

// An application's own table may have a nullable count, and a surrogate id beside a unique (key,
// slot): the COALESCE and the conflict target fit both.
template <class Names>
std::string insert_text(const Names& n, const sql::Grammar& g, std::size_t rows) {
    std::string text =
        "INSERT INTO " + n.table + " (" + n.key + ", " + n.slot + ", " + n.count + ") VALUES ";
    for (std::size_t row = 0; row < rows; ++row) {
        const auto place = [&](std::size_t i) { return "?" + std::to_string(3 * row + i); };
        text += (row == 0 ? "(" : ", (") + place(1) + ", " + place(2) + ", " + place(3) + ")";
    }
    return text + g.or_update(n.key + ", " + n.slot) + n.count + " = COALESCE(" +
           g.own(n.table, n.count) + ", 0) + " + g.excluded(n.count);
}

}  // namespace

// Where rows are locked, an update by the key first and an insert if there is no row: an upsert burns
// a value of a surrogate id each time, and in InnoDB takes a gap lock when the unique key is not the
// primary one. Several rows together are an upsert all the same, sorted: one round trip instead of
// many.
SlotTable::SlotTable(const Names& n, const sql::Grammar& g)
    : schema(schema_text(n, g)),
      add(!g.locks_rows() ? insert_text(n, g, 1) + " RETURNING " + n.count
                          : "UPDATE " + n.table + " SET " + n.count + " = COALESCE(" + n.count +
                                ", 0) + ?3 WHERE " + n.key + " = ?1 AND " + n.slot + " = ?2"),
      add_or_insert(insert_text(n, g, 1)),
      take_free("SELECT 1 FROM " + n.table + " WHERE " + n.key + " = ?1 AND " + n.slot + " = ?2" +
                skip_locked(g)),
      find("SELECT 1 FROM " + n.table + " WHERE " + n.key + " = ?1 AND " + n.slot + " = ?2"),
      sum("SELECT COALESCE(SUM(" + n.count + "), 0) FROM " + n.table + " WHERE " + n.key + " = ?1"),
      lock_rows("SELECT " + n.slot + ", " + n.count + " FROM " + n.table + " WHERE " + n.key +
                " = ?1 ORDER BY " + n.slot + g.for_update()),
      remove("DELETE FROM " + n.table + " WHERE " + n.key + " = ?1 AND " + n.slot + " = ?2"),
      remember_op("INSERT INTO " + n.op + " (\"key\", op_id, at) VALUES (?1, ?2, ?3)" +
                  g.or_nothing("op_id")),
      old_ops("SELECT \"key\", op_id FROM " + n.op + " WHERE at < ?1 LIMIT ?2" + skip_locked(g)),
      forget_op("DELETE FROM " + n.op + " WHERE \"key\" = ?1 AND op_id = ?2"),
      one_writer_(!g.locks_rows()) {
    if (one_writer_) return;
    for (const std::size_t rows : {256U, 64U, 16U, 4U}) {
        add_rows.push_back({rows, sql::Statement{insert_text(n, g, rows)}});
    }
}

}  // namespace hotcount
