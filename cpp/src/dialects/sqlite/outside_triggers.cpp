// Triggers of the vote tables on SQLite.
//
// Our connections run no triggers if the database has no others (kVoteTrigger), and count themselves.
// If the application has triggers, which must run, ours count our own writes too: SQLite shows a
// trigger neither the text of its statement nor a variable of its session, and a mark in a table costs
// more than it spares. Then our writers leave out what triggers count (ours()).
//
// The triggers belong to one place, and create_tables() changes them in the transaction that moves the
// counts: reading the mark for each row would cost as much as counting it. A comment in each says which
// event it counts, and where.
#include "votes/tables/outside_triggers.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "dialect.hpp"
#include "hotcount_embedded/dialects/sqlite/sql.hpp"
#include "sql/dialect.hpp"
#include "sql/statements.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

using sql::kVoteTrigger;
const std::set<std::string> kOfVotes{"inserted", "moved", "updated"};

using Events = std::set<std::string>;

// Of the triggers on the tables that are hotcount's.
struct Found {
    Events of_users{}, anonymous{};
    bool renamed{false};
    bool elsewhere{false};  // One counts in another place.
    std::vector<std::string> names{};
};

CountPlace place_of(const VotesOptions& options) {
    return count_place(options, sql::sqlite_grammar().dialect());
}

std::string table_of(const VotesOptions& options, std::string_view suffix) {
    return sql::TableName::of(options.vote_table).beside(suffix).name;
}

Result<Found> read(sql::Connection& connection, const VotesOptions& options) {
    static const sql::Statement kRead{sql::sqlite_catalog()["triggers"]};
    Found found;
    const std::string place{to_string(place_of(options))};
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        const std::string_view text = row.text(3);
        const auto comma = std::min(text.find(','), text.size());
        const std::string event{text.substr(0, comma)};
        if (row.integer(0) != 0) {
            found.of_users.insert(event);
        } else if (row.integer(1) != 0) {
            found.anonymous.insert(event);
        } else {
            found.renamed = true;
        }
        found.names.emplace_back(row.text(2));
        found.elsewhere |= !text.substr(comma).starts_with(", in " + place + " ");
        return {};
    };
    const std::string votes = table_of(options, "");
    const std::string anonymous = table_of(options, "_anonymous");
    const std::string items = sql::TableName::of(options.item_table).name;
    const std::string renamed = table_of(options, "_hotcount_renamed");
    HOTCOUNT_TRY(
        connection.query(kRead,
                         {std::string_view{votes}, std::string_view{anonymous},
                          std::string_view{items}, std::string_view{renamed}, kVoteTrigger},
                         see));
    return found;
}

sql::Statements triggers(const VoteNames& n, CountPlace place) {
    sql::Names names = to_names(n);
    names.merge(sql::Names{{"mark", std::string{kVoteTrigger}},
                           {"place", std::string{to_string(place)}},
                           {"in_item", sql::flag(place == CountPlace::item)},
                           {"in_cells", sql::flag(place == CountPlace::cells)},
                           {"in_cache", sql::flag(place == CountPlace::cache)}});
    return {sql::sqlite::kTriggersSql, std::move(names)};
}

class SqliteOutsideTriggers final : public OutsideTriggers {
  public:
    Result<FoundTriggers> find(sql::Connection& connection,
                               const VotesOptions& options) const override {
        FoundTriggers triggers;
        HOTCOUNT_TRY_ASSIGN(Found found, read(connection, options));
        Events all{kOfVotes};
        all.insert("deleted");
        OutsideWrites form = OutsideWrites::none;
        if (!found.names.empty()) {
            Events both{found.of_users};
            both.insert(found.anonymous.begin(), found.anonymous.end());
            form = found.renamed || both != Events{"deleted"} ? OutsideWrites::count
                                                              : OutsideWrites::deletes;
        }
        const Events whole = form == OutsideWrites::count ? all : Events{"deleted"};
        const bool good = form == OutsideWrites::none ||
                          (found.of_users == whole && found.anonymous == whole &&
                           found.renamed == (form == OutsideWrites::count) && !found.elsewhere);
        (good ? triggers.form : triggers.stale) = form;
        triggers.ours = std::move(found.names);
        HOTCOUNT_TRY(find_taken(connection, options, triggers));
        HOTCOUNT_TRY(find_cascades(connection, options, triggers));
        return triggers;
    }

    std::string script(const VotesOptions& options, const VoteNames& n, OutsideWrites form,
                       const FoundTriggers& found) const override {
        // Its own transaction, also within one.
        std::string text = "SAVEPOINT hotcount;\n" + drop(found);
        if (form != OutsideWrites::none) {
            const VoteNames anonymous = n.anonymous(sql::sqlite_grammar());
            const auto add = [&](const VoteNames& of, const std::string& event) {
                const std::string suffix = &of == &n ? "" : "_anonymous";
                const std::string name = table_of(options, suffix + "_hotcount_" + event);
                text += sql::one_line(
                    triggers(of, place_of(options))
                        .with(event, {{"trigger", sql::quote_identifier(name)}, {"event", event}}));
            };
            for (const VoteNames* of : {&n, &anonymous}) {
                add(*of, "deleted");
                if (form != OutsideWrites::count) continue;
                for (const char* event : {"inserted", "updated", "moved"}) add(*of, event);
            }
            if (form == OutsideWrites::count) add(n, "renamed");
        }
        return text + outside_mark(n, sql::sqlite_grammar(), form) + "RELEASE hotcount;\n";
    }
    std::string drop(const FoundTriggers& found) const override {
        std::string text;
        const sql::Statements sql{sql::sqlite::kTriggersSql, {}};
        for (const std::string& name : found.ours) {
            text += sql.with("drop", {{"trigger", sql::quote_identifier(name)}});
        }
        return text;
    }

    Result<CountedByTriggers> ours(sql::Connection& connection, const VotesOptions& options,
                                   std::atomic<std::int64_t>& seen) const override {
        static const sql::Statement kVersion{"PRAGMA schema_version"};
        std::int64_t version = 0;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            version = row.integer(0);
            return {};
        };
        HOTCOUNT_TRY(connection.query(kVersion, {}, see));
        // The schema's version, and in the low bits what was found for it. 0 is unknown: a schema
        // with votes has a version above 0.
        std::int64_t known = seen.load(std::memory_order_relaxed);
        if (known >> 4 != version) {
            HOTCOUNT_TRY_ASSIGN(const Found found, read_running(connection, options));
            known = version << 4;
            int bit = 0;
            for (const Events* events : {&found.of_users, &found.anonymous}) {
                Events of_votes{*events};
                const bool deletes = of_votes.erase("deleted") > 0;
                if (found.elsewhere || (!of_votes.empty() && of_votes != kOfVotes)) {
                    return stale(options);
                }
                known |= (of_votes.empty() ? 0 : 1 << bit) | (deletes ? 2 << bit : 0);
                bit += 2;
            }
            seen.store(known, std::memory_order_relaxed);
        }
        return CountedByTriggers{(known & 1) != 0, (known & 2) != 0, (known & 4) != 0,
                                 (known & 8) != 0};
    }
    std::string unless_counted(const VotesOptions& options, bool anonymous) const override {
        return sql::Statements{sql::sqlite::kTriggersSql, {}}.with(
            "not_counted", {{"inserted", literal(std::string{kVoteTrigger} + "inserted")},
                            {"table", literal(table_of(options, anonymous ? "_anonymous" : ""))}});
    }

    std::string_view blind_to(OutsideWrites form) const override {
        static constexpr std::string_view kAlways =
            "rows that REPLACE, INSERT OR REPLACE or UPDATE OR REPLACE deletes in a session "
            "without "
            "recursive_triggers, and writes of a session that has disabled triggers";
        static const std::string kOfDeletes = "inserted and updated rows, " + std::string{kAlways};
        return form == OutsideWrites::deletes ? std::string_view{kOfDeletes} : kAlways;
    }

  private:
    // The triggers that run for our own statements.
    static Result<Found> read_running(sql::Connection& connection, const VotesOptions& options) {
        bool any = false;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            any = row.integer(0) != 0;
            return {};
        };
        HOTCOUNT_TRY(connection.query(sql::other_triggers(), {kVoteTrigger}, see));
        if (!any) return Found{};
        return read(connection, options);
    }

    static Error stale(const VotesOptions& options) {
        return make_error(ErrorCode::config,
                          "the triggers of table " + options.vote_table +
                              " that count what others write are incomplete, or are those of "
                              "another strategy; create_tables() recreates them; nothing was "
                              "applied");
    }

    static Result<void> find_taken(sql::Connection& connection, const VotesOptions& options,
                                   FoundTriggers& triggers) {
        static const sql::Statement kTaken{sql::sqlite_catalog()["taken"]};
        const std::string votes = table_of(options, "_hotcount_");
        const std::string anonymous = table_of(options, "_anonymous_hotcount_");
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            triggers.taken = "trigger " + std::string{row.text(0)};
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            kTaken, {std::string_view{votes}, std::string_view{anonymous}, kVoteTrigger}, see));
        return {};
    }

    static Result<void> find_cascades(sql::Connection& connection, const VotesOptions& options,
                                      FoundTriggers& triggers) {
        static const sql::Statement kCascades{sql::sqlite_catalog()["cascades"]};
        const std::string votes = table_of(options, "");
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            note_key(triggers, "of " + std::string{row.text(0)} + " to " + std::string{row.text(1)},
                     row.text(2), row.text(3), row.integer(4) != 0);
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            kCascades, {std::string_view{votes}, std::string_view{options.vote_item}}, see));
        return {};
    }
};

}  // namespace

const OutsideTriggers& sqlite_outside_triggers() {
    static const SqliteOutsideTriggers kTriggers;
    return kTriggers;
}

}  // namespace hotcount
