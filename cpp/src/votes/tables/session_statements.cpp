// The statements of a vote in a transaction of the application's own: votes/sql/session.sql.
#include "sql/statements.hpp"

#include <hotcount/detail/votes/integrations.hpp>

#include "hotcount_embedded/votes/sql.hpp"
#include "outside_triggers.hpp"
#include "vote_dialect.hpp"

namespace hotcount {
namespace {

constexpr std::string_view to_count_statement(CountPlace place) {
    switch (place) {
        case CountPlace::item:
            return "count_in_item";
        case CountPlace::cells:
            return "count_in_cells";
        case CountPlace::journal:
            return "count_in_journal";
        case CountPlace::cache:
            break;
    }
    return "count_in_cache";
}

// True if the vote must lock the item's row; session.sql, lock_item, says why.
bool locks_alone(const sql::Grammar& g, const VotesOptions& options) {
    return options.strategy == VoteStrategy::naive && g.shares_parents();
}
bool locks_item(const sql::Grammar& g, const VotesOptions& options) {
    return !options.foreign_key || !g.locks_rows() || locks_alone(g, options);
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
    // If triggers count the vote, the difference is 0.
    const std::string counts =
        vote_dialect(dialect).outside_triggers().unless_counted(all, anonymous);
    const sql::Names names{
        {"creates", sql::flag(creates)},
        {"locks_item", sql::flag(locks_item(g, options))},
        {"alone", sql::flag(locks_alone(g, options))},
        {"or_nothing_locks", sql::flag(g.or_nothing_locks())},
        {"has_returning", sql::flag(g.has_returning())},
        {"checks_foreign_keys", std::string{vote_dialect(dialect).checks_foreign_keys()}},
        {"session_mode", mode.empty() ? "NULL" : mode},
        {"route", literal(vote_route(options, dialect))},
        {"difference", counts.empty() ? "?1" : "?1 * " + counts}};
    const sql::Statements sql = vote_statements(vote_sql::kSessionSql, n, g, names);
    const sql::Statements reads = vote_statements(vote_sql::kReadsSql, n, g);

    std::map<std::string, std::string> made{{"route", vote_route(options, dialect)}};
    const auto add = [&](const char* name, const std::string& text,
                         std::initializer_list<std::string_view> parameters) {
        made[name] = sql::session_statement(g, text, parameters);
    };
    if (place == CountPlace::journal && !in_cells) made["folds"] = "";
    const auto add_named = [&](const char* name,
                               std::initializer_list<std::string_view> parameters) {
        add(name, sql[name], parameters);
    };
    if (at_once) add_named("look", {"item"});
    add_named("hold_route", {"item"});
    if (creates) add_named("add_item", {"item"});
    if (locks_item(g, options)) add_named("lock_item", {"item"});
    add("write_vote",
        at_once ? sql["write_and_note"]
                : vote_dialect(dialect).outside_triggers().own_write(sql["write_vote"]),
        {"item", "user", "value", "version"});
    if (!g.has_returning()) add_named("read_vote", {"item", "user"});
    if (place == CountPlace::journal && !in_cells && !at_once) {
        add_named("note", {"item", "difference"});
    }
    if (in_cells) {
        if (!mode.empty()) add_named("find_cell", {"item", "slot"});
        add_named("bump_cell", {"difference", "item", "slot"});
        add_named("insert_cell", {"difference", "item", "slot"});
    }
    if (place == CountPlace::item) add_named("bump_item", {"difference", "item"});
    if (place == CountPlace::cache) add_named("ask_recount", {"item"});
    add("count", vote_statements(vote_sql::kSessionSql, of_users, g)[to_count_statement(place)],
        {"item"});
    add("vote", reads.call("vote_of_user", {"?1", "?2"}), {"item", "user"});
    add_named("votes", {"user", "items"});
    add("voters", reads.call("voters_of", {"?1", "?2"}, {{"after", ""}}), {"item", "limit"});
    add("voters_after", reads.call("voters_of", {"?1", "?2"}, {{"after", "1"}}),
        {"item", "after", "limit"});
    return made;
}

}  // namespace hotcount
