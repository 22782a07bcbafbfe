#include "layout.hpp"

#include <utility>

#include "hotcount_embedded/votes/sql.hpp"
#include "outside_triggers.hpp"
#include "sql/table_name.hpp"
#include "vote_dialect.hpp"

namespace hotcount {

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

std::string nobodys(const VoteNames& n) {
    return n.vote_item + " = ?1 AND " + n.value + " = ?2 AND " + n.vote_user + " IS NULL";
}

std::string id_parameter(const sql::Grammar& g, std::string_view parameter, IdType type) {
    if (type != IdType::integer) return std::string{parameter};
    return g.typed(std::string{parameter}, sql::ColumnType::integer);
}

namespace {

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

std::string migration(const VoteNames& n, const VoteDialect& d, CountPlace place) {
    if (place != CountPlace::journal) return "";
    const std::string before{to_string(CountPlace::cells)};
    const std::string old_mark =
        "(SELECT value FROM " + n.meta + " WHERE name = 'counted_in') = '" + before + "'";
    const std::string mark = "UPDATE " + n.meta + " SET value = '" + std::string{to_string(place)} +
                             "' WHERE name IN ('counted_in', 'vote_route') AND value = '" + before +
                             "';";
    return d.migration(n, old_mark, mark);
}

}  // namespace

VotesOptions anonymous_options(VotesOptions options) {
    options.vote_table = sql::TableName::of(options.vote_table).beside("_anonymous").text();
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
    const std::string value = bits_of(n.value, bits);
    return "(" + sum_over(n.vote, n.vote_item, item, value) + " + " +
           sum_over(n.anonymous_vote, n.vote_item, item, value) + " + " +
           opening_of(n, item, bits) + ")";
}

std::string literal(const std::string& text) {
    std::string quoted = "'";
    for (const char c : text) {
        quoted += c;
        if (c == '\'') quoted += c;
    }
    return quoted + "'";
}

std::string cell_totals(const VoteNames& n) {
    return "(SELECT item, SUM(n) AS total FROM " + n.cell + " GROUP BY item) AS c";
}

std::string journal_sum(const VoteNames& n, const std::string& item) {
    return "(" + sum_over(n.cell, "item", item, "n") + " + " +
           sum_over(n.journal, "item", item, "diff") + ")";
}

namespace {

std::string now_text(const sql::Grammar& g) {
    return "CAST(" + g.now_microseconds() + " AS " + g.text_cast() + ")";
}

// Right whatever the mark says, so that it stays right through a change of strategy.
std::string count_view(const VoteNames& n, const VoteDialect& d) {
    const std::string id = "hc_i." + n.id;
    std::string text = d.grammar().create_view(n.count_view) + " AS SELECT " + id +
                       " AS item, CAST(CASE (" + "SELECT value FROM " + n.meta +
                       " WHERE name = 'counted_in') WHEN 'cells' " + "THEN " +
                       sum_over(n.cell, "item", id, "n");
    if (d.is_server()) text += " WHEN 'journal' THEN " + journal_sum(n, id);
    // Without a column for the count the mark has never named it here.
    const std::string stored = n.count.empty() ? counted_sum(n, id) : n.own_count("hc_i");
    text += " WHEN 'cache' THEN " + counted_sum(n, id) + " ELSE " + stored + " END AS " +
            d.grammar().integer_cast();
    return text + ") AS n FROM " + n.item + " AS hc_i;\n";
}

}  // namespace

std::string settle_text(const VoteNames& n, const VoteDialect& d, CountPlace place,
                        const std::string& when) {
    const sql::Grammar& g = d.grammar();
    const std::string id = n.item + "." + n.id;
    const std::string owed = counted_sum(n, id);
    const std::string if_so = when.empty() ? "" : when + " AND ";
    std::string text;
    if (d.is_server()) {
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
    const std::string ver = folds ? g.now_microseconds() : "1";
    const std::string next = g.own(n.cell, "ver") + " + 1";
    return text + "INSERT INTO " + n.cell + " (item, slot, n, ver) SELECT " + id + ", " + slot +
           ", " + owed + " - " + cells + ", " + ver + " FROM " + n.item + " WHERE " + if_so + owed +
           " <> " + cells + g.or_update("item, slot") + "n = " + g.own(n.cell, "n") + " + " +
           g.excluded("n") +
           ", ver = " + (folds ? "GREATEST(" + next + ", " + g.excluded("ver") + ")" : next) +
           ";\n" +
           (n.count.empty() ? ""
                            : "UPDATE " + n.item + " SET " + n.count + " = " + cells + " WHERE " +
                                  if_so + g.differ(n.count, cells) + ";\n");
}

std::vector<SchemaPart> schema_parts(const VoteNames& n, const VoteDialect& d) {
    const sql::Grammar& g = d.grammar();
    const std::string number = g.type(sql::ColumnType::integer);
    const std::string text = g.type(sql::ColumnType::text);
    std::vector<SchemaPart> parts;
    const auto add_table = [&](const std::string& name, const std::string& columns,
                               const std::string& end) {
        parts.push_back({name,
                         "CREATE TABLE IF NOT EXISTS " + name + " (" + columns + ")" + end + ";\n",
                         false});
    };
    const auto add_votes = [&](const VoteNames& of) {
        add_table(of.vote,
                  n.vote_item + " " + n.item_type + " NOT NULL, " + of.vote_user + " " +
                      of.user_type + " NOT NULL, " + n.value + " " + number + " NOT NULL, " +
                      n.previous + " " + number + " NOT NULL DEFAULT 0, " + n.version + " " +
                      number + ", PRIMARY KEY (" + n.vote_item + ", " + of.vote_user + ")" +
                      (n.foreign_key ? ", FOREIGN KEY (" + n.vote_item + ") REFERENCES " + n.item +
                                           " (" + n.id + ")"
                                     : ""),
                  g.table_end());
    };
    add_table(n.item,
              n.id + " " + n.item_type + " NOT NULL PRIMARY KEY" +
                  (n.count.empty() ? "" : ", " + n.count + " " + number + " NOT NULL DEFAULT 0"),
              d.item_table_end());
    add_votes(n);
    add_votes(n.anonymous(g));
    add_table(n.cell,
              "item " + n.item_type + " NOT NULL, slot " + number + " NOT NULL, n " + number +
                  " NOT NULL, ver " + number + " NOT NULL, PRIMARY KEY (item, slot)",
              g.table_end());
    if (d.is_server()) parts.push_back({n.journal, d.journal_table(n), false});
    add_table(n.meta, "name " + text + " NOT NULL PRIMARY KEY, value " + text + " NOT NULL",
              g.table_end());
    parts.back().text += "INSERT INTO " + n.meta +
                         " (name, value) VALUES ('schema', '1'), ('folded_at', '0'), "
                         "('fold_took', '0')" +
                         g.or_nothing("name") + ";\n";
    parts.push_back({n.live,
                     g.create_view(n.live) + " AS SELECT " + n.vote_item + ", " + n.vote_user +
                         ", " + n.value + " FROM " + n.vote + " WHERE " + n.value +
                         " <> 0 UNION ALL SELECT " + n.vote_item + ", NULL, " + n.value + " FROM " +
                         n.anonymous_vote + ";\n",
                     true});
    parts.push_back({n.count_view, count_view(n, d), true});
    return parts;
}

std::string schema_text(const VoteNames& n, const VoteDialect& d) {
    std::string text = d.grammar().lock_schema();
    for (const SchemaPart& part : schema_parts(n, d)) text += part.text;
    return text;
}

VoteNames::VoteNames(const VotesOptions& options, const sql::Grammar& grammar)
    : VoteNames(options, grammar, sql::TableName::of(options.vote_table)) {}

VoteNames::VoteNames(const VotesOptions& options, const sql::Grammar& grammar,
                     const sql::TableName& votes)
    : item(sql::TableName::of(options.item_table).sql()),
      id(sql::quote_identifier(options.item_id)),
      count(options.item_count.empty() ? "" : sql::quote_identifier(options.item_count)),
      vote(votes.sql()),
      vote_item(sql::quote_identifier(options.vote_item)),
      vote_user(sql::quote_identifier(options.vote_user)),
      value(sql::quote_identifier(options.vote_value)),
      previous(sql::quote_identifier(options.vote_previous)),
      version(sql::quote_identifier(options.vote_version)),
      anonymous_vote(sql::TableName::of(anonymous_options(options).vote_table).sql()),
      anonymous_user(sql::quote_identifier(anonymous_options(options).vote_user)),
      cell(votes.beside("_cell").sql()),
      live(votes.beside("_live").sql()),
      meta(votes.beside("_meta").sql()),
      journal(votes.beside("_journal").sql()),
      journal_index(votes.beside("_by_item").sql()),
      journal_index_name(sql::quote_identifier(votes.beside("_by_item").name)),
      count_view(votes.beside("_count").sql()),
      sync(votes.beside("_sync").sql()),
      recount(votes.beside("_recount").sql()),
      item_type(grammar.type(column_type(options.item_type))),
      user_type(grammar.type(column_type(options.user_type))),
      foreign_key(options.foreign_key),
      item_parameter(sql::Grammar::parameter_type(column_type(options.item_type))),
      user_parameter(sql::Grammar::parameter_type(column_type(options.user_type))) {}

VoteNames VoteNames::anonymous(const sql::Grammar& grammar) const {
    VoteNames names{*this};
    names.vote = anonymous_vote;
    names.vote_user = anonymous_user;
    names.user_type = grammar.type(sql::ColumnType::text);
    names.user_parameter = sql::Grammar::parameter_type(sql::ColumnType::text);
    return names;
}

sql::Names to_names(const VoteNames& n) {
    return {{"item", n.item},
            {"id", n.id},
            {"count", n.count},
            {"vote", n.vote},
            {"vote_item", n.vote_item},
            {"vote_user", n.vote_user},
            {"value", n.value},
            {"previous", n.previous},
            {"version", n.version},
            {"anonymous_vote", n.anonymous_vote},
            {"anonymous_user", n.anonymous_user},
            {"cell", n.cell},
            {"live", n.live},
            {"meta", n.meta},
            {"journal", n.journal},
            {"journal_index", n.journal_index},
            {"journal_index_name", n.journal_index_name},
            {"count_view", n.count_view},
            {"sync", n.sync},
            {"recount", n.recount},
            {"item_type", n.item_type},
            {"user_type", n.user_type},
            {"foreign_key", sql::flag(n.foreign_key)},
            {"has_count", sql::flag(!n.count.empty())},
            {"item_parameter", std::string{n.item_parameter}},
            {"user_parameter", std::string{n.user_parameter}},
            {"integer_items", sql::flag(n.item_parameter == "bigint")},
            {"integer_users", sql::flag(n.user_parameter == "bigint")},
            {"opening_slot", std::to_string(kOpeningSlot)},
            {"fold_slot", std::to_string(kFoldSlot)}};
}

sql::Statements vote_statements(std::string_view file, const VoteNames& n, const sql::Grammar& g,
                                sql::Names more) {
    more.merge(to_names(n));
    return {{file, vote_sql::kPartsSql, g.words()}, std::move(more)};
}

Layout::Layout(const VotesOptions& options, sql::Dialect dialect)
    : Layout(options, VoteNames{options, dialect.grammar()}, hotcount::vote_dialect(dialect)) {}

sql::Dialect Layout::dialect() const { return dialect_.grammar().dialect(); }

Result<CountedByTriggers> Layout::counted_by_triggers(sql::Connection& connection) const {
    return dialect_.outside_triggers().ours(connection, options_, triggers_seen_);
}

Layout::Layout(const VotesOptions& options, const VoteNames& n, const VoteDialect& d)
    : counts_in_items(!n.count.empty()),
      add_item("INSERT INTO " + n.item + " (" + n.id + ") VALUES (?1)" +
               d.grammar().or_nothing(n.id)),
      bump_item("UPDATE " + n.item + " SET " + n.count + " = COALESCE(" + n.count +
                ", 0) + ?1 WHERE " + n.id + " = ?2" +
                d.grammar().and_fits("COALESCE(" + n.count + ", 0) + ?1")),
      bump_cell("UPDATE " + n.cell +
                " SET n = n + ?3, ver = ver + 1 WHERE item = ?1 AND slot = ?2" +
                d.grammar().and_fits("n + ?3")),
      insert_cell("INSERT INTO " + n.cell + " (item, slot, n, ver) VALUES (?1, ?2, ?3, 1)" +
                  d.grammar().or_nothing("item")),
      fold_item("UPDATE " + n.item + " SET " + n.count + " = (SELECT COALESCE(SUM(n), 0) FROM " +
                n.cell + " WHERE item = ?1) WHERE " + n.id + " = ?1"),
      fold_lagging(d.fold_lagging(n)),
      // Whoever votes for the item only needs its key to stay.
      lock_item("SELECT " + n.id + " FROM " + n.item + " WHERE " + n.id + " = ?1" +
                d.grammar().for_no_key_update()),
      keep_item("SELECT 1 FROM " + n.item + " WHERE " + n.id + " = " +
                id_parameter(d.grammar(), "?1", options.item_type) + d.grammar().for_key_share()),
      // A mark that voters neither read nor write.
      reconcile_alone("SELECT value FROM " + n.meta + " WHERE name = 'schema'" +
                      d.grammar().for_update()),
      count_in_item("SELECT " + n.own_count(n.item) + " FROM " + n.item + " WHERE " + n.id +
                    " = ?1"),
      count_in_cells("SELECT COALESCE(SUM(n), 0) FROM " + n.cell + " WHERE item = ?1"),
      append("INSERT INTO " + n.journal + " (item, diff) VALUES (?1, ?2)"),
      read_place("SELECT value FROM " + n.meta + " WHERE name = 'counted_in'"),
      read_route("SELECT value FROM " + n.meta + " WHERE name = 'vote_route'"),
      hold_route(read_route.text() + d.grammar().for_share()),
      hold_fence("SELECT value FROM " + n.meta + " WHERE name = 'stream_fence'" +
                 d.grammar().for_share()),
      read_strategy("SELECT value FROM " + n.meta + " WHERE name = 'counted_by'"),
      read_folded("SELECT value FROM " + n.meta + " WHERE name = 'folded_at'"),
      write_marks(
          "INSERT INTO " + n.meta +
          " (name, value) VALUES ('counted_in', ?1), ('counted_by', ?2), ('vote_route', ?3), "
          "('folded_at', " +
          now_text(d.grammar()) + ")" + d.grammar().or_update("name") +
          "value = " + d.grammar().excluded("value")),
      find_table(d.grammar().find_table("?1", "?2")),
      lock_fold(d.lock_fold(n)),
      lock_all(d.lock_all(n)),
      settle(settle_text(n, d, count_place(options, d.grammar().dialect()), "")),
      migration(hotcount::migration(n, d, count_place(options, d.grammar().dialect()))),
      options_(options),
      place_(count_place(options, d.grammar().dialect())),
      dialect_(d),
      schema_(schema_text(n, d)) {}

}  // namespace hotcount
