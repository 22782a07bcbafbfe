#include "layout.hpp"

#include <algorithm>

namespace hotcount {

namespace {

sql::ColumnType column_type(IdType type) {
    switch (type) {
        case IdType::integer:
            return sql::ColumnType::integer;
        case IdType::text:
            return sql::ColumnType::text;
        case IdType::uuid:
            break;
    }
    return sql::ColumnType::uuid;
}

std::string bits_of(const std::string& column, Bits bits) {
    switch (bits) {
        case Bits::all:
            break;
        case Bits::upper:
            return column + " >> 32";
        case Bits::lower:
            return column + " & 4294967295";
    }
    return column;
}

std::string audit(const VoteNames& n, CountPlace place, const std::string& from,
                  const std::string& id, const std::string& stored) {
    std::string journal = "0, 0";
    if (place == CountPlace::journal) {
        journal = sum_over(n.journal, "item", id, "diff") + ", (SELECT COUNT(*) FROM " + n.journal +
                  " WHERE item = " + id + ")";
    }
    return "SELECT " + id + ", " + stored + ", " + sum_over(n.cell, "item", id, "n") + ", " +
           journal + ", " + counted_sum(n, id) + " FROM " + from;
}

std::string audit_items(const VoteNames& n, CountPlace place, const std::string& which) {
    return audit(n, place, n.item + " AS hc_i " + which, "hc_i." + n.id, "hc_i." + n.count);
}

// Cells that an item left behind when its row was deleted by hand: one made again would count on.
std::string audit_orphans(const VoteNames& n, CountPlace place) {
    return audit(n, place,
                 "(SELECT DISTINCT item FROM " + n.cell + " WHERE NOT EXISTS (SELECT 1 FROM " +
                     n.item + " WHERE " + n.item + "." + n.id + " = " + n.cell +
                     ".item)) AS hc_c ORDER BY hc_c.item",
                 "hc_c.item", "0");
}

std::string fold_lagging(const VoteNames& n, const sql::Grammar& g) {
    const std::string totals =
        "(SELECT item, SUM(n) AS total FROM " + n.cell + " GROUP BY item) AS c";
    const std::string lags = g.differ("i." + n.count, "c.total");
    if (g.dialect() == sql::Dialect::mysql) {
        return "SELECT i." + n.id + " FROM " + n.item + " AS i JOIN " + totals + " ON c.item = i." +
               n.id + " WHERE " + lags + " ORDER BY i." + n.id;
    }
    return "UPDATE " + n.item + " AS i SET " + n.count + " = c.total FROM " + totals +
           " WHERE c.item = i." + n.id + " AND " + lags;
}

std::string lock_fold(const VoteNames& n, const sql::Grammar& g) {
    switch (g.dialect()) {
        case sql::Dialect::sqlite:
            return "";
        case sql::Dialect::postgres:
            return "SELECT pg_advisory_xact_lock(" + fold_lock_key(n) + ");\n";
        case sql::Dialect::mysql:
            break;
    }
    return "SELECT value FROM " + n.meta + " WHERE name = 'folded_at' FOR UPDATE;\n";
}

std::string lock_all(const VoteNames& n, const sql::Grammar& g) {
    switch (g.dialect()) {
        case sql::Dialect::sqlite:
            return "";
        case sql::Dialect::postgres:
            // The marks first: who holds them has yet to touch the votes.
            return "SELECT value FROM " + n.meta + " ORDER BY name FOR UPDATE;\nLOCK TABLE " +
                   n.vote + ", " + n.anonymous_vote + " IN SHARE ROW EXCLUSIVE MODE;\n";
        case sql::Dialect::mysql:
            break;
    }
    return "SELECT value FROM " + n.meta + " ORDER BY name FOR UPDATE;\n";
}

std::string find_table(const sql::Grammar& g) {
    switch (g.dialect()) {
        case sql::Dialect::sqlite:
            return "SELECT COUNT(*) FROM sqlite_master WHERE name = ?1";
        case sql::Dialect::postgres:
            return "SELECT COUNT(to_regclass(quote_ident(CAST(?1 AS text))))";
        case sql::Dialect::mysql:
            break;
    }
    return "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND "
           "TABLE_NAME = ?1";
}

std::string one_line(std::string text) {
    std::replace(text.begin(), text.end(), '\n', ' ');
    return text;
}

std::string migration(const VoteNames& n, const sql::Grammar& g, CountPlace place) {
    if (place != CountPlace::journal) return "";
    const std::string before{to_string(CountPlace::cells)};
    const std::string old_mark =
        "(SELECT value FROM " + n.meta + " WHERE name = 'counted_in') = '" + before + "'";
    const std::string mark = "UPDATE " + n.meta + " SET value = '" + std::string{to_string(place)} +
                             "' WHERE name = 'counted_in' AND value = '" + before + "';";
    if (g.dialect() == sql::Dialect::postgres) {
        const std::string locks = "PERFORM pg_advisory_xact_lock(" + fold_lock_key(n) +
                                  "); PERFORM value FROM " + n.meta +
                                  " ORDER BY name FOR UPDATE; LOCK TABLE " + n.vote + ", " +
                                  n.anonymous_vote + " IN SHARE ROW EXCLUSIVE MODE; ";
        // Under another level what follows the locks would be read from before them.
        const std::string level =
            "IF current_setting('transaction_isolation') <> 'read committed' THEN COMMIT; SET "
            "TRANSACTION ISOLATION LEVEL READ COMMITTED; END IF; ";
        return "DO $hotcount$ BEGIN IF " + old_mark + " THEN " + level + locks + "IF " + old_mark +
               " THEN " + one_line(settle_text(n, g, place, "")) + mark +
               " END IF; END IF; END $hotcount$;\n";
    }
    return "START TRANSACTION;\n" + lock_fold(n, g) + lock_all(n, g) +
           settle_text(n, g, place, old_mark) + mark + "\nCOMMIT;\n";
}

}  // namespace

VotesOptions anonymous_options(VotesOptions options) {
    options.vote_table += "_anonymous";
    options.vote_user = "op_id";
    options.user_type = IdType::text;
    return options;
}

std::string sum_over(const std::string& table, const std::string& key, const std::string& item,
                     const std::string& value) {
    return "(SELECT COALESCE(SUM(" + value + "), 0) FROM " + table + " WHERE " + key + " = " +
           item + ")";
}

std::string opening_of(const VoteNames& n, const std::string& item, Bits bits) {
    return sum_over(n.cell, "slot = " + std::to_string(kOpeningSlot) + " AND item", item,
                    bits_of("n", bits));
}

std::string counted_sum(const VoteNames& n, const std::string& item, Bits bits) {
    const std::string value = bits_of("val", bits);
    return "(" + sum_over(n.vote, n.vote_item, item, value) + " + " +
           sum_over(n.anonymous_vote, n.vote_item, item, value) + " + " +
           opening_of(n, item, bits) + ")";
}

namespace {

std::string literal(const std::string& text) {
    std::string quoted = "'";
    for (const char c : text) {
        quoted += c;
        if (c == '\'') quoted += c;
    }
    return quoted + "'";
}

// A table's number in PostgreSQL's catalogue.
std::string regclass(const std::string& table) {
    return "CAST(" + literal(table) + " AS regclass)";
}

}  // namespace

std::string journal_sum(const VoteNames& n, const std::string& item) {
    return "(" + sum_over(n.cell, "item", item, "n") + " + " +
           sum_over(n.journal, "item", item, "diff") + ")";
}

namespace {

// The index is for exact reads: a sum over one item of 7,000 pending rows took 300 us without it and
// 30 with it, and 64 votes of as many items 8 % more of the server's time (PostgreSQL 15).
std::string journal_table(const VoteNames& n, const sql::Grammar& g) {
    const std::string number = g.type(sql::ColumnType::integer);
    switch (g.dialect()) {
        case sql::Dialect::sqlite:
            return "";  // One writer: it counts in the item's row.
        case sql::Dialect::postgres:
            // The identity is for logical replication: there is no key to tell deleted rows by.
            return "CREATE TABLE IF NOT EXISTS " + n.journal + " (item " + n.item_type +
                   " NOT NULL, diff " + number + " NOT NULL);\n" +
                   // CREATE INDEX IF NOT EXISTS would lock the table before it looks.
                   "DO $hotcount$ BEGIN IF to_regclass(" + literal(n.journal_index) +
                   ") IS NULL THEN CREATE INDEX " + n.journal_index + " ON " + n.journal +
                   " (item); END IF; IF (SELECT relreplident <> 'f' FROM pg_class WHERE oid = " +
                   regclass(n.journal) + ") THEN ALTER TABLE " + n.journal +
                   " REPLICA IDENTITY FULL; END IF; END $hotcount$;\n";
        case sql::Dialect::mysql:
            break;
    }
    // An item's rows are together: through an index by item each of them was looked up in the table
    // as well, and an exact read over 10,000 Zipf items took 0.25 ms of the server's time instead of
    // 0.1. Folds go by the number.
    return "CREATE TABLE IF NOT EXISTS " + n.journal + " (id " + number +
           " NOT NULL AUTO_INCREMENT, item " + n.item_type + " NOT NULL, diff " + number +
           " NOT NULL, PRIMARY KEY (item, id), UNIQUE KEY by_id (id))" + g.table_end() + ";\n";
}

std::string now_text(const sql::Grammar& g) {
    return "CAST(" + now_microseconds(g) + " AS " +
           (g.dialect() == sql::Dialect::mysql ? "CHAR" : "TEXT") + ")";
}

// Right whatever the mark says, so that it stays right through a change of strategy.
std::string count_view(const VoteNames& n, const sql::Grammar& g) {
    const std::string id = "hc_i." + n.id;
    std::string text = g.create_view(n.count_view) + " AS SELECT " + id + " AS item, CAST(CASE (" +
                       "SELECT value FROM " + n.meta + " WHERE name = 'counted_in') WHEN 'cells' " +
                       "THEN " + sum_over(n.cell, "item", id, "n");
    if (g.dialect() != sql::Dialect::sqlite) text += " WHEN 'journal' THEN " + journal_sum(n, id);
    text += " WHEN 'cache' THEN " + counted_sum(n, id) + " ELSE COALESCE(hc_i." + n.count +
            ", 0) END AS ";
    text += g.dialect() == sql::Dialect::mysql ? "SIGNED" : g.type(sql::ColumnType::integer);
    return text + ") AS n FROM " + n.item + " AS hc_i;\n";
}

}  // namespace

std::string settle_text(const VoteNames& n, const sql::Grammar& g, CountPlace place,
                        const std::string& when) {
    const std::string id = n.item + "." + n.id;
    const std::string owed = counted_sum(n, id);
    const std::string if_so = when.empty() ? "" : when + " AND ";
    std::string text;
    if (g.dialect() != sql::Dialect::sqlite) {
        // Not TRUNCATE: it empties the table for snapshots that are older, a dump's.
        text = "DELETE FROM " + n.journal + (when.empty() ? "" : " WHERE " + when) + ";\n";
    }
    if (place == CountPlace::item || place == CountPlace::cache) {
        return text + "UPDATE " + n.item + " SET " + n.count + " = " + owed + " WHERE " + if_so +
               g.differ(n.count, owed) + ";\n";
    }
    const bool folds = place == CountPlace::journal;
    const std::string slot = std::to_string(folds ? kFoldSlot : 0);
    const std::string cells = sum_over(n.cell, "item", id, "n");
    // As a fold's: copies in a cache are as of that time.
    const std::string ver = folds ? now_microseconds(g) : "1";
    const std::string next = g.own(n.cell, "ver") + " + 1";
    return text + "INSERT INTO " + n.cell + " (item, slot, n, ver) SELECT " + id + ", " + slot +
           ", " + owed + " - " + cells + ", " + ver + " FROM " + n.item + " WHERE " + if_so + owed +
           " <> " + cells + g.or_update("item, slot") + "n = " + g.own(n.cell, "n") + " + " +
           g.excluded("n") +
           ", ver = " + (folds ? "GREATEST(" + next + ", " + g.excluded("ver") + ")" : next) +
           ";\nUPDATE " + n.item + " SET " + n.count + " = " + cells + " WHERE " + if_so +
           g.differ(n.count, cells) + ";\n";
}

std::string fold_lock_key(const VoteNames& n) {
    // The table's own number: two sets of tables in one database do not wait for each other.
    return "CAST(CAST(" + regclass(n.journal) + " AS oid) AS int), 1";
}

std::string now_microseconds(const sql::Grammar& g) {
    switch (g.dialect()) {
        case sql::Dialect::sqlite:
            return "CAST((julianday('now') - 2440587.5) * 86400000000 AS INTEGER)";
        case sql::Dialect::postgres:
            return "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)";
        case sql::Dialect::mysql:
            break;
    }
    return "CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED)";
}

std::string schema_text(const VoteNames& n, const sql::Grammar& g) {
    const std::string number = g.type(sql::ColumnType::integer);
    const std::string text = g.type(sql::ColumnType::text);
    // Two that create at once would meet in PostgreSQL's catalogue.
    const std::string alone = g.dialect() == sql::Dialect::postgres
                                  ? "SELECT pg_advisory_xact_lock(hashtext('hotcount schema'));\n"
                                  : "";
    const auto vote_table = [&](const VoteNames& of) {
        return "CREATE TABLE IF NOT EXISTS " + of.vote + " (" + n.vote_item + " " + n.item_type +
               " NOT NULL, " + of.vote_user + " " + of.user_type + " NOT NULL, val " + number +
               " NOT NULL, prev " + number + " NOT NULL DEFAULT 0, version " + number +
               ", PRIMARY KEY (" + n.vote_item + ", " + of.vote_user + ")" +
               (n.foreign_key
                    ? ", FOREIGN KEY (" + n.vote_item + ") REFERENCES " + n.item + " (" + n.id + ")"
                    : "") +
               ")" + g.table_end() + ";\n";
    };
    return alone + "CREATE TABLE IF NOT EXISTS " + n.item + " (" + n.id + " " + n.item_type +
           " NOT NULL PRIMARY KEY, " + n.count + " " + number + " NOT NULL DEFAULT 0)" +
           (g.dialect() == sql::Dialect::sqlite ? "" : g.table_end()) + ";\n" + vote_table(n) +
           vote_table(n.anonymous(g)) + "CREATE TABLE IF NOT EXISTS " + n.cell + " (item " +
           n.item_type + " NOT NULL, slot " + number + " NOT NULL, n " + number +
           " NOT NULL, ver " + number + " NOT NULL, PRIMARY KEY (item, slot))" + g.table_end() +
           ";\n" + journal_table(n, g) + "CREATE TABLE IF NOT EXISTS " + n.meta + " (name " + text +
           " NOT NULL PRIMARY KEY, value " + text + " NOT NULL)" + g.table_end() +
           ";\n"
           "INSERT INTO " +
           n.meta +
           " (name, value) VALUES ('schema', '1'), ('folded_at', '0'), ('fold_took', '0')" +
           g.or_nothing("name") + ";\n" + g.create_view(n.live) + " AS SELECT " + n.vote_item +
           ", " + n.vote_user + ", val FROM " + n.vote + " WHERE val <> 0 UNION ALL SELECT " +
           n.vote_item + ", NULL, val FROM " + n.anonymous_vote + ";\n" + count_view(n, g);
}

VoteNames::VoteNames(const VotesOptions& options, const sql::Grammar& grammar)
    : item(sql::quote_identifier(options.item_table)),
      id(sql::quote_identifier(options.item_id)),
      count(sql::quote_identifier(options.item_count)),
      vote(sql::quote_identifier(options.vote_table)),
      vote_item(sql::quote_identifier(options.vote_item)),
      vote_user(sql::quote_identifier(options.vote_user)),
      anonymous_vote(sql::quote_identifier(anonymous_options(options).vote_table)),
      anonymous_user(sql::quote_identifier(anonymous_options(options).vote_user)),
      cell(sql::quote_identifier(options.vote_table + "_cell")),
      live(sql::quote_identifier(options.vote_table + "_live")),
      meta(sql::quote_identifier(options.vote_table + "_meta")),
      journal(sql::quote_identifier(options.vote_table + "_journal")),
      journal_index(sql::quote_identifier(options.vote_table + "_by_item")),
      count_view(sql::quote_identifier(options.vote_table + "_count")),
      item_type(grammar.type(column_type(options.item_type))),
      user_type(grammar.type(column_type(options.user_type))),
      foreign_key(options.foreign_key) {}

VoteNames VoteNames::anonymous(const sql::Grammar& grammar) const {
    VoteNames names{*this};
    names.vote = anonymous_vote;
    names.vote_user = anonymous_user;
    names.user_type = grammar.type(sql::ColumnType::text);
    return names;
}

Layout::Layout(const VotesOptions& options, sql::Dialect dialect)
    : Layout(options, VoteNames{options, sql::Grammar{dialect}}, sql::Grammar{dialect}) {}

Layout::Layout(const VotesOptions& options, const VoteNames& n, const sql::Grammar& g)
    : add_item("INSERT INTO " + n.item + " (" + n.id + ") VALUES (?1)" + g.or_nothing(n.id)),
      bump_item("UPDATE " + n.item + " SET " + n.count + " = COALESCE(" + n.count +
                ", 0) + ?1 WHERE " + n.id + " = ?2" +
                g.and_fits("COALESCE(" + n.count + ", 0) + ?1")),
      bump_cell("UPDATE " + n.cell +
                " SET n = n + ?3, ver = ver + 1 WHERE item = ?1 AND slot = ?2" +
                g.and_fits("n + ?3")),
      insert_cell("INSERT INTO " + n.cell + " (item, slot, n, ver) VALUES (?1, ?2, ?3, 1)" +
                  g.or_nothing("item")),
      fold_item("UPDATE " + n.item + " SET " + n.count + " = (SELECT COALESCE(SUM(n), 0) FROM " +
                n.cell + " WHERE item = ?1) WHERE " + n.id + " = ?1"),
      fold_lagging(hotcount::fold_lagging(n, g)),
      // Whoever votes for the item only needs its key to stay.
      lock_item("SELECT " + n.id + " FROM " + n.item + " WHERE " + n.id + " = ?1" +
                (g.dialect() == sql::Dialect::postgres ? " FOR NO KEY UPDATE" : g.for_update())),
      // A mark that voters neither read nor write.
      reconcile_alone("SELECT value FROM " + n.meta + " WHERE name = 'schema'" + g.for_update()),
      count_in_item("SELECT COALESCE(" + n.count + ", 0) FROM " + n.item + " WHERE " + n.id +
                    " = ?1"),
      count_in_cells("SELECT COALESCE(SUM(n), 0) FROM " + n.cell + " WHERE item = ?1"),
      audit_one(audit_items(n, count_place(options.strategy, g.dialect()),
                            "WHERE hc_i." + n.id + " = ?1")),
      audit_first(audit_items(n, count_place(options.strategy, g.dialect()),
                              "ORDER BY hc_i." + n.id + " LIMIT ?1")),
      audit_after(audit_items(n, count_place(options.strategy, g.dialect()),
                              "WHERE hc_i." + n.id + " > ?1 ORDER BY hc_i." + n.id + " LIMIT ?2")),
      audit_orphans(hotcount::audit_orphans(n, count_place(options.strategy, g.dialect()))),
      append("INSERT INTO " + n.journal + " (item, diff) VALUES (?1, ?2)"),
      items_first("SELECT " + n.id + " FROM " + n.item + " ORDER BY " + n.id + " LIMIT ?1"),
      items_after("SELECT " + n.id + " FROM " + n.item + " WHERE " + n.id + " > ?1 ORDER BY " +
                  n.id + " LIMIT ?2"),
      read_place("SELECT value FROM " + n.meta + " WHERE name = 'counted_in'"),
      hold_place("SELECT value FROM " + n.meta + " WHERE name = 'counted_in'" + g.for_share()),
      read_strategy("SELECT value FROM " + n.meta + " WHERE name = 'counted_by'"),
      read_folded("SELECT value FROM " + n.meta + " WHERE name = 'folded_at'"),
      write_marks("INSERT INTO " + n.meta +
                  " (name, value) VALUES ('counted_in', ?1), ('counted_by', ?2), ('folded_at', " +
                  now_text(g) + ")" + g.or_update("name") + "value = " + g.excluded("value")),
      find_table(hotcount::find_table(g)),
      lock_fold(hotcount::lock_fold(n, g)),
      lock_all(hotcount::lock_all(n, g)),
      settle(settle_text(n, g, count_place(options.strategy, g.dialect()), "")),
      migration(hotcount::migration(n, g, count_place(options.strategy, g.dialect()))),
      place_(count_place(options.strategy, g.dialect())),
      dialect_(g.dialect()),
      schema_(schema_text(n, g)) {}

}  // namespace hotcount
