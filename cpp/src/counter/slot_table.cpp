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

SlotTable::SlotTable(const SlottedCounterOptions& options) : SlotTable(Names{options}) {}

// The seed's own table has a nullable count and a surrogate id beside a unique (key, slot): the
// COALESCE and the conflict target fit both.
SlotTable::SlotTable(const Names& n)
    : schema("CREATE TABLE IF NOT EXISTS " + n.table + " (" + n.key + " TEXT NOT NULL, " + n.slot +
             " INTEGER NOT NULL, " + n.count + " INTEGER NOT NULL, PRIMARY KEY (" + n.key + ", " +
             n.slot +
             ")) WITHOUT ROWID;\n"
             "CREATE TABLE IF NOT EXISTS " +
             n.op +
             " (key TEXT NOT NULL, op_id TEXT NOT NULL, at INTEGER NOT NULL, PRIMARY KEY (key, "
             "op_id)) WITHOUT ROWID;\n"
             "CREATE INDEX IF NOT EXISTS " +
             n.op_index + " ON " + n.op + " (at);\n"),
      add("INSERT INTO " + n.table + " (" + n.key + ", " + n.slot + ", " + n.count +
          ") VALUES (?1, ?2, ?3) ON CONFLICT (" + n.key + ", " + n.slot + ") DO UPDATE SET " +
          n.count + " = COALESCE(" + n.count + ", 0) + excluded." + n.count + " RETURNING " +
          n.count),
      sum("SELECT COALESCE(SUM(" + n.count + "), 0) FROM " + n.table + " WHERE " + n.key + " = ?1"),
      remove("DELETE FROM " + n.table + " WHERE " + n.key + " = ?1"),
      remember_op("INSERT INTO " + n.op +
                  " (key, op_id, at) VALUES (?1, ?2, ?3) "
                  "ON CONFLICT DO NOTHING"),
      forget_ops("DELETE FROM " + n.op + " WHERE (key, op_id) IN (SELECT key, op_id FROM " + n.op +
                 " WHERE at < ?1 LIMIT 2)") {}

}  // namespace hotcount
