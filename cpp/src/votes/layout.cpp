#include "layout.hpp"

namespace hotcount {

namespace {

std::string column_type(IdType type) { return type == IdType::integer ? "INTEGER" : "TEXT"; }

}  // namespace

CountPlace count_place(VoteStrategy strategy) {
    switch (strategy) {
        case VoteStrategy::naive:
            return CountPlace::item;
        case VoteStrategy::cached:
            return CountPlace::cache;
        case VoteStrategy::slotted:
        case VoteStrategy::batched:
            break;
    }
    return CountPlace::cells;
}

std::string_view to_string(CountPlace place) {
    switch (place) {
        case CountPlace::item:
            return "item";
        case CountPlace::cells:
            return "cells";
        case CountPlace::cache:
            break;
    }
    return "cache";
}

// All names quoted, as they stand in SQL.
struct Layout::Names {
    explicit Names(const VotesOptions& options)
        : item(sql::quote_identifier(options.item_table)),
          id(sql::quote_identifier(options.item_id)),
          count(sql::quote_identifier(options.item_count)),
          vote(sql::quote_identifier(options.vote_table)),
          vote_item(sql::quote_identifier(options.vote_item)),
          vote_user(sql::quote_identifier(options.vote_user)),
          cell(sql::quote_identifier(options.vote_table + "_cell")),
          live(sql::quote_identifier(options.vote_table + "_live")),
          meta(sql::quote_identifier(options.vote_table + "_meta")) {}

    std::string item, id, count, vote, vote_item, vote_user, cell, live, meta;

    std::string audit(const std::string& which) const {
        return "SELECT i." + id + ", i." + count + ", (SELECT COALESCE(SUM(n), 0) FROM " + cell +
               " WHERE item = i." + id + "), (SELECT COALESCE(SUM(val), 0) FROM " + vote +
               " WHERE " + vote_item + " = i." + id + ") FROM " + item + " AS i " + which;
    }
};

Layout::Layout(const VotesOptions& options) : Layout(options, Names{options}) {}

Layout::Layout(const VotesOptions& options, const Names& n)
    : read_vote("SELECT val, version FROM " + n.vote + " WHERE " + n.vote_item + " = ?1 AND " +
                n.vote_user + " = ?2"),
      insert_vote("INSERT INTO " + n.vote + " (" + n.vote_item + ", " + n.vote_user +
                  ", val, prev, version) VALUES (?1, ?2, ?3, 0, ?4)"),
      update_vote("UPDATE " + n.vote +
                  " SET prev = val, val = ?3, version = COALESCE(?4, version) "
                  "WHERE " +
                  n.vote_item + " = ?1 AND " + n.vote_user + " = ?2"),
      add_item("INSERT INTO " + n.item + " (" + n.id + ") VALUES (?1) ON CONFLICT DO NOTHING"),
      // SQLite turns a sum beyond 64 bits into a real without a word: such a row is not touched.
      bump_item("UPDATE " + n.item + " SET " + n.count + " = COALESCE(" + n.count +
                ", 0) + ?1 WHERE " + n.id + " = ?2 AND typeof(COALESCE(" + n.count +
                ", 0) + ?1) = 'integer'"),
      bump_cell("UPDATE " + n.cell +
                " SET n = n + ?3, ver = ver + 1 WHERE item = ?1 AND slot = ?2 "
                "AND typeof(n + ?3) = 'integer'"),
      insert_cell("INSERT INTO " + n.cell +
                  " (item, slot, n, ver) VALUES (?1, ?2, ?3, 1) ON CONFLICT DO NOTHING"),
      fold_item("UPDATE " + n.item + " SET " + n.count + " = (SELECT COALESCE(SUM(n), 0) FROM " +
                n.cell + " WHERE item = ?1) WHERE " + n.id + " = ?1"),
      fold_lagging("UPDATE " + n.item + " AS i SET " + n.count +
                   " = c.total FROM (SELECT item, "
                   "SUM(n) AS total FROM " +
                   n.cell + " GROUP BY item) AS c WHERE c.item = i." + n.id + " AND i." + n.count +
                   " IS NOT c.total"),
      set_item("UPDATE " + n.item + " SET " + n.count + " = ?1 WHERE " + n.id + " = ?2"),
      count_in_item("SELECT COALESCE(" + n.count + ", 0) FROM " + n.item + " WHERE " + n.id +
                    " = ?1"),
      count_in_cells("SELECT COALESCE(SUM(n), 0) FROM " + n.cell + " WHERE item = ?1"),
      audit_one(n.audit("WHERE i." + n.id + " = ?1")),
      audit_first(n.audit("ORDER BY i." + n.id + " LIMIT ?1")),
      audit_after(n.audit("WHERE i." + n.id + " > ?1 ORDER BY i." + n.id + " LIMIT ?2")),
      items_first("SELECT " + n.id + " FROM " + n.item + " ORDER BY " + n.id + " LIMIT ?1"),
      items_after("SELECT " + n.id + " FROM " + n.item + " WHERE " + n.id + " > ?1 ORDER BY " +
                  n.id + " LIMIT ?2"),
      read_place("SELECT value FROM " + n.meta + " WHERE name = 'counted_in'"),
      read_strategy("SELECT value FROM " + n.meta + " WHERE name = 'counted_by'"),
      write_marks("INSERT INTO " + n.meta +
                  " (name, value) VALUES ('counted_in', ?1), ('counted_by', ?2) ON CONFLICT "
                  "(name) DO UPDATE SET value = excluded.value"),
      schema_("CREATE TABLE IF NOT EXISTS " + n.item + " (" + n.id + " " +
              column_type(options.item_type) + " PRIMARY KEY NOT NULL, " + n.count +
              " INTEGER NOT NULL DEFAULT 0);\n"
              "CREATE TABLE IF NOT EXISTS " +
              n.vote + " (" + n.vote_item + " " + column_type(options.item_type) +
              " NOT NULL REFERENCES " + n.item + " (" + n.id + "), " + n.vote_user + " " +
              column_type(options.user_type) +
              " NOT NULL, val INTEGER NOT NULL, prev INTEGER NOT NULL DEFAULT 0, version INTEGER, "
              "PRIMARY KEY (" +
              n.vote_item + ", " + n.vote_user +
              ")) WITHOUT ROWID;\n"
              "CREATE TABLE IF NOT EXISTS " +
              n.cell + " (item " + column_type(options.item_type) +
              " NOT NULL, slot INTEGER NOT NULL, n INTEGER NOT NULL, ver INTEGER NOT NULL, "
              "PRIMARY KEY (item, slot)) WITHOUT ROWID;\n"
              "CREATE TABLE IF NOT EXISTS " +
              n.meta +
              " (name TEXT PRIMARY KEY NOT NULL, value TEXT NOT NULL) WITHOUT ROWID;\n"
              "INSERT INTO " +
              n.meta +
              " (name, value) VALUES ('schema', '1') ON CONFLICT DO NOTHING;\n"
              "CREATE VIEW IF NOT EXISTS " +
              n.live + " AS SELECT " + n.vote_item + ", " + n.vote_user + ", val FROM " + n.vote +
              " WHERE val <> 0;\n") {}

}  // namespace hotcount
