// The statements of a vote in a transaction of the application's own. They count in the same rows as
// those of layout.cpp at once, so they take the same locks in the same order: the place, item, vote,
// cell.
#include "sql/session_statement.hpp"

#include <hotcount/detail/votes/session_statements.hpp>

#include "outside_triggers.hpp"
#include "sql/table_name.hpp"
#include "vote_dialect.hpp"
#include "vote_reader.hpp"

namespace hotcount {
namespace {

// INSERT INTO vote ..., up to its rows.
std::string insert_vote(const VoteNames& n) {
    return "INSERT INTO " + n.vote + " (" + n.vote_item + ", " + n.vote_user + ", " + n.value +
           ", " + n.previous + ", " + n.version + ") ";
}

// The row keeps what it was. MySQL's assignments go from left to right: what decides comes after what
// it decides about.
std::string upsert(const VoteNames& n, const sql::Grammar& g) {
    const std::string version = g.excluded(n.version);
    const std::string own_version = g.own(n.vote, n.version);
    const std::string own_value = g.own(n.vote, n.value);
    const std::string applies = "(" + version + " IS NULL OR " + own_version + " IS NULL OR " +
                                own_version + " < " + version + ")";
    return g.or_update(n.vote_item + ", " + n.vote_user) + n.previous + " = " + own_value + ", " +
           n.value + " = CASE WHEN " + applies + " THEN " + g.excluded(n.value) + " ELSE " +
           own_value + " END, " + n.version + " = CASE WHEN " + applies + " THEN COALESCE(" +
           version + ", " + own_version + ") ELSE " + own_version + " END";
}

// The vote and its journal row in one statement. Whoever moves the counts waits for every
// transaction that has written votes, and a statement that waited for him reads its snapshot after
// his commit. So the mark needs no lock, except at levels whose snapshot is the transaction's.
std::string write_and_note(const VoteNames& n, const sql::Grammar& g, const VotesOptions& options) {
    const std::string item = g.typed("?1", column_type(options.item_type));
    const std::string source =
        "SELECT " + item + ", " + g.typed("?2", column_type(options.user_type)) + ", " +
        g.typed("?3", sql::ColumnType::integer) + ", 0, " +
        g.typed("?4", sql::ColumnType::integer) + " FROM " + n.meta +
        " WHERE name = 'vote_route' AND value = '" + vote_route(options, g.dialect()) + "'";
    return "WITH hc_own AS (SELECT 1), w AS (" + insert_vote(n) + source + upsert(n, g) +
           " RETURNING " + n.previous + " AS prev, " + n.value +
           " AS val), noted AS (INSERT INTO " + n.journal + " (item, diff) SELECT " + item +
           ", val - prev FROM w WHERE val <> prev) SELECT prev, val FROM w";
}

std::string count_text(const VoteNames& n, CountPlace place) {
    switch (place) {
        case CountPlace::item:
            return "SELECT " + n.own_count(n.item) + " FROM " + n.item + " WHERE " + n.id + " = ?1";
        case CountPlace::cells:
            return "SELECT COALESCE(SUM(n), 0) FROM " + n.cell + " WHERE item = ?1";
        case CountPlace::journal:
            return "SELECT " + sum_over(n.cell, "item", "?1", "n") + " + " +
                   sum_over(n.journal, "item", "?1", "diff");
        case CountPlace::cache:
            break;
    }
    return "SELECT " + sum_over(n.vote, n.vote_item, "?1", n.value) + " + " +
           sum_over(n.anonymous_vote, n.vote_item, "?1", n.value) + " + " + opening_of(n, "?1");
}

// Locks an item against those who would wait for us, or we for them. Or, if nothing else refuses a
// vote for an item that does not exist, makes sure that it exists: SQLite checks foreign keys only
// if its connection was told to.
std::string item_lock(const sql::Grammar& g, const VotesOptions& options) {
    if (options.strategy == VoteStrategy::naive && g.shares_parents()) return g.for_update();
    return g.for_key_share();
}
bool locks_item(const sql::Grammar& g, const VotesOptions& options) {
    return !options.foreign_key || !g.locks_rows() ||
           (options.strategy == VoteStrategy::naive && g.shares_parents());
}

// 1 if the item ?1 exists or a later statement would find it missing, else NULL. A session may have
// switched its foreign keys off, as loads and replication do.
std::string item_exists(const VoteNames& n, const VoteDialect& d, const VotesOptions& options) {
    const std::string found = "(SELECT 1 FROM " + n.item + " WHERE " + n.id + " = ?1)";
    if (options.missing_item == MissingItem::create) return found;
    if (locks_item(d.grammar(), options)) return "1";
    return "CASE WHEN " + std::string{d.checks_foreign_keys()} + " THEN 1 ELSE " + found + " END";
}

}  // namespace

std::map<std::string, std::string> vote_session_statements(sql::Dialect dialect,
                                                           const VotesOptions& all,
                                                           bool anonymous) {
    const sql::Grammar& g = dialect.grammar();
    const VoteNames of_users{all, g};
    const VoteNames n = anonymous ? of_users.anonymous(g) : of_users;
    const VotesOptions options = anonymous ? anonymous_options(all) : all;
    const CountPlace place = count_place(options, dialect);
    const bool in_cells = options.strategy == VoteStrategy::slotted || place == CountPlace::cells;
    const bool at_once = options.strategy == VoteStrategy::batched && g.writes_in_queries();
    const bool creates = options.missing_item == MissingItem::create;
    const std::string mode{g.session_mode()};
    const std::string mark = " FROM " + n.meta + " WHERE name = 'vote_route'";
    const std::string cell_key = " WHERE item = ?2 AND slot = ?3";

    std::map<std::string, std::string> made{{"route", vote_route(options, dialect)}};
    const auto add = [&](const char* name, const std::string& text,
                         std::initializer_list<std::string_view> parameters) {
        made[name] = sql::session_statement(g, text, parameters);
    };
    if (place == CountPlace::journal && !in_cells) made["folds"] = "";
    const std::string exists = item_exists(n, vote_dialect(dialect), options);
    if (at_once) {
        add("look", "SELECT value, " + exists + ", current_setting('transaction_isolation')" + mark,
            {"item"});
    }
    add("hold_route",
        "SELECT value, " + exists + ", " + (mode.empty() ? "NULL" : mode) + mark + g.for_share(),
        {"item"});
    if (creates) {
        // If it exists, an upsert that locks would keep the item's row from everybody else.
        add("add_item",
            "INSERT INTO " + n.item + " (" + n.id + ") VALUES (?1)" +
                (g.or_nothing_locks() ? "" : g.or_nothing(n.id)),
            {"item"});
    }
    if (locks_item(g, options)) {
        add("lock_item",
            "SELECT 1 FROM " + n.item + " WHERE " + n.id + " = ?1" + item_lock(g, options),
            {"item"});
    }
    const auto of_vote = {std::string_view{"item"}, std::string_view{"user"},
                          std::string_view{"value"}, std::string_view{"version"}};
    if (at_once) {
        add("write_vote", write_and_note(n, g, options), of_vote);
    } else {
        add("write_vote",
            vote_dialect(dialect).outside_triggers().own_write(
                insert_vote(n) + "VALUES (?1, ?2, ?3, 0, ?4)" + upsert(n, g) +
                (g.has_returning() ? " RETURNING " + n.previous + ", " + n.value : "")),
            of_vote);
    }
    if (!g.has_returning()) {
        // The upsert has locked the row already; reading it with a lock reads it as it is. A plain
        // read under REPEATABLE READ would return the row of the transaction's snapshot, unless the
        // upsert has changed it.
        add("read_vote",
            "SELECT " + n.previous + ", " + n.value + " FROM " + n.vote + " WHERE " + n.vote_item +
                " = ?1 AND " + n.vote_user + " = ?2" + g.for_update(),
            {"item", "user"});
    }
    if (place == CountPlace::journal && !in_cells && !at_once) {
        add("note", "INSERT INTO " + n.journal + " (item, diff) VALUES (?1, ?2)",
            {"item", "difference"});
    }
    // Where triggers count the vote there is nothing left to add.
    const std::string counts =
        vote_dialect(dialect).outside_triggers().unless_counted(all, anonymous);
    const std::string difference = counts.empty() ? "?1" : "?1 * " + counts;
    if (in_cells) {
        if (!mode.empty()) {
            add("find_cell",
                "SELECT (SELECT 1 FROM " + n.cell + " WHERE item = ?1 AND slot = ?2), " + mode,
                {"item", "slot"});
        }
        add("bump_cell",
            "UPDATE " + n.cell + " SET n = " + g.checked_sum("n", difference) + ", ver = ver + 1" +
                cell_key,
            {"difference", "item", "slot"});
        add("insert_cell",
            "INSERT INTO " + n.cell + " (item, slot, n, ver) VALUES (?2, ?3, " + difference +
                ", 1)" + g.or_update("item, slot") + "n = " +
                g.checked_sum(n.cell + ".n", g.excluded("n")) + ", ver = " + n.cell + ".ver + 1",
            {"difference", "item", "slot"});
    }
    if (place == CountPlace::item) {
        add("bump_item",
            "UPDATE " + n.item + " SET " + n.count + " = " + g.checked_sum(n.count, difference) +
                " WHERE " + n.id + " = ?2",
            {"difference", "item"});
    }
    if (place == CountPlace::cache) {
        const std::string again = sql::TableName::of(all.vote_table).beside("_recount").sql();
        add("ask_recount",
            "INSERT INTO " + again + " (item, asked) VALUES (?1, 1)" + g.or_update("item") +
                "asked = " + again + ".asked + 1",
            {"item"});
    }
    add("count", count_text(of_users, place), {"item"});
    add("vote", select_vote(n), {"item", "user"});
    // A LIMIT of its own, because a session of MySQL may have sql_select_limit.
    add("votes",
        "SELECT " + n.vote_item + ", " + n.value + " FROM " + n.vote + " WHERE " + n.vote_user +
            " = ?1 AND " + n.vote_item + " IN ?2 LIMIT 9223372036854775807",
        {"user", "items"});
    add("voters", select_voters(n, false), {"item", "limit"});
    add("voters_after", select_voters(n, true), {"item", "after", "limit"});
    return made;
}

}  // namespace hotcount
