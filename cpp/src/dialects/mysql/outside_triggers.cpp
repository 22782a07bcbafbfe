// Triggers of the vote tables on MariaDB and MySQL.
#include "votes/tables/outside_triggers.hpp"

#include <algorithm>
#include <array>

#include "dialect.hpp"
#include "hotcount_embedded/dialects/mysql/sql.hpp"
#include "sql/dialect.hpp"
#include "sql/statements.hpp"
#include "votes/tables/adoption.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

// Of both vote tables.
constexpr std::array<std::string_view, 4> kEvents{"deleted", "inserted", "updated", "inserting"};
// It limits nothing: a session has one more by default.
constexpr const char* kOwnLimit = "sql_select_limit = 18446744073709551614";
// A part of the body of each trigger of hotcount's, which identifies it: clients may strip a
// comment. IS NULL would not do: sessions share a trigger, and in MySQL one of our sessions would
// leave it FALSE for all. With AND each row would evaluate the second variable too, a tenth of the
// trigger's cost to a batch on MariaDB.
constexpr std::string_view kOthers =
    "NOT @hotcount_own <=> 1 THEN IF NOT @@session.sql_select_limit = 18446744073709551614";

// The names of all possible triggers: one for each of kEvents on each of the two tables.
struct Names {
    explicit Names(const VotesOptions& options) {
        const auto votes = sql::TableName::of(options.vote_table);
        schema = votes.schema;
        table = votes.name;
        anonymous = votes.beside("_anonymous").name;
        for (const std::string& of : {table, anonymous}) {
            for (const std::string_view event : kEvents) {
                all.push_back(of + "_hotcount_" + std::string{event});
            }
        }
    }
    std::size_t find(const std::string& name) const {
        return static_cast<std::size_t>(std::find(all.begin(), all.end(), name) - all.begin());
    }
    std::string schema{}, table{}, anonymous{};
    std::vector<std::string> all{};
};

std::string_view event_of(std::size_t i) { return kEvents.at(i % kEvents.size()); }

VoteNames names_of(const VoteNames& n, std::size_t i) {
    return i < kEvents.size() ? n : n.anonymous(sql::mysql_grammar());
}

bool is_wanted(OutsideWrites form, std::string_view event, CountPlace place) {
    if (form == OutsideWrites::none) return false;
    if (event == kEvents[3] && place != CountPlace::item) return false;
    return event == kEvents[0] || form == OutsideWrites::count;
}

sql::Statements triggers(const VoteNames& n, CountPlace place, bool for_ignored) {
    sql::Names names = to_names(n);
    names.merge(sql::Names{{"others", std::string{kOthers}},
                           {"in_journal", sql::flag(place == CountPlace::journal)},
                           {"in_item", sql::flag(place == CountPlace::item)},
                           {"for_ignored", sql::flag(for_ignored)}});
    return {sql::mysql::kTriggersSql, std::move(names)};
}

std::string text_of(const VoteNames& n, CountPlace place, std::string_view event,
                    bool for_ignored) {
    const sql::Statements sql = triggers(n, place, for_ignored);
    return sql.with("text", {{"body", sql[event]}});
}

// Without quotation marks and white space, in which a client's script may differ.
std::string plain(std::string text) {
    std::erase_if(text, [](char c) { return c == '"' || c == '`' || c == ' ' || c == '\n'; });
    return text.substr(0, text.find_last_not_of(';') + 1);
}

std::string_view when(std::string_view event) {
    if (event == "deleted") return "AFTER DELETE";
    if (event == "inserting") return "BEFORE INSERT";
    return event == "inserted" ? "AFTER INSERT" : "AFTER UPDATE";
}

bool has(const std::vector<std::string>& names, const std::string& name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

CountPlace place_of(const VotesOptions& options) {
    return count_place(options, sql::mysql_grammar().dialect());
}

class MysqlOutsideTriggers final : public OutsideTriggers {
  public:
    Result<FoundTriggers> find(sql::Connection& connection,
                               const VotesOptions& options) const override {
        FoundTriggers found;
        HOTCOUNT_TRY(find_triggers(connection, options, found));
        HOTCOUNT_TRY(find_cascades(connection, options, found));
        return found;
    }

    Result<void> try_rights(sql::Connection& connection,
                            const VotesOptions& options) const override {
        const Names names{options};
        const VoteNames n{options, sql::mysql_grammar()};
        const sql::TableName trigger{names.schema, names.all.back()};
        const auto tried = connection.run_script(
            triggers(n, place_of(options), false).with("try_rights", {{"trigger", trigger.sql()}}));
        if (tried) return {};
        const std::string& code = tried.error().server_code;
        // ER_REFERENCED_TRG_DOES_NOT_EXIST of MariaDB and of MySQL, ER_NO_SUCH_TABLE,
        // ER_TRG_ALREADY_EXISTS
        if (code == "4031" || code == "3011" || code == "1146" || code == "1359") return {};
        const std::string wish = "outside_writes: ";
        if (code == "1142") {
            return refuse_table(wish + "this account has no TRIGGER privilege on table " +
                                options.vote_table +
                                ": GRANT TRIGGER, or have another account run what migration() "
                                "prints");
        }
        if (code == "1419") {
            return refuse_table(wish +
                                "the server writes a binary log, and lets this account "
                                "create no trigger: SET GLOBAL log_bin_trust_function_creators = "
                                "1, or have an account with SUPER run what migration() prints");
        }
        if (code == "1059") {
            return refuse_table(wish + "the name of table " + options.vote_table +
                                " leaves no room for those of its triggers, which end in " +
                                "_anonymous_hotcount_inserting and have 64 characters at most");
        }
        return tried.error();
    }

    bool have_rights(sql::Connection& connection, const VotesOptions& options) const override {
        const VoteNames n{options, sql::mysql_grammar()};
        const std::string id = options.item_type == IdType::integer ? "0"
                               : options.item_type == IdType::text
                                   ? "''"
                                   : "'00000000-0000-0000-0000-000000000000'";
        const auto tried = connection.run_script(
            triggers(n, place_of(options), false).with("try_vote", {{"some_id", id}}));
        if (tried) return true;
        const Error& error = tried.error();
        // ER_NO_SUCH_USER; ER_TABLEACCESS_DENIED_ERROR, which this account may get too.
        return error.server_code != "1449" &&
               (error.server_code != "1142" ||
                error.message.find("TRIGGER command") == std::string::npos);
    }

    std::string script(const VotesOptions& options, const VoteNames& n, OutsideWrites form,
                       const FoundTriggers& found) const override {
        const CountPlace place = place_of(options);
        // Triggers lock its row.
        const std::string mark = outside_mark(n, sql::mysql_grammar(), form);
        std::string text = form == OutsideWrites::none ? "" : mark;
        const Names names{options};
        const auto sql_name = [&](const std::string& name) {
            return sql::TableName{names.schema, name}.sql();
        };
        const auto drop = [&](const std::string& name) {
            text += triggers(n, place, false).with("drop", {{"trigger", sql_name(name)}});
        };
        for (const std::string& name : found.ours) {
            if (!has(names.all, name)) drop(name);
        }
        for (std::size_t i = 0; i < names.all.size(); ++i) {
            const std::string& name = names.all[i];
            const bool wanted = is_wanted(form, event_of(i), place);
            const bool there = has(found.ours, name);
            // The other triggers go on counting: a change of the schema cannot be rolled back.
            const bool stays = wanted && there && found.stale == OutsideWrites::none;
            if (there && !stays) drop(name);
            if (!wanted || stays) continue;
            const VoteNames of = names_of(n, i);
            text += sql::one_line(triggers(of, place, found.run_for_ignored)
                                      .with("create", {{"trigger", sql_name(name)},
                                                       {"when", std::string{when(event_of(i))}},
                                                       {"text", text_of(of, place, event_of(i),
                                                                        found.run_for_ignored)}}));
        }
        return form == OutsideWrites::none ? text + mark : text;
    }

    // MariaDB reads the comment, and MySQL the hint.
    std::string own_write(const std::string& statement) const override {
        const auto rest = statement.find(' ');
        return "/*M! SET STATEMENT " + std::string{kOwnLimit} + " FOR */ " +
               statement.substr(0, rest) + " /*+ SET_VAR(" + kOwnLimit + ") */" +
               statement.substr(rest);
    }

    bool see_cascades() const override { return false; }

    std::string_view blind_to(OutsideWrites form) const override {
        if (form == OutsideWrites::deletes) {
            return "inserted and updated rows (REPLACE counts as the delete that it begins with), "
                   "TRUNCATE, and rows that a dropped or exchanged partition takes along";
        }
        return "TRUNCATE, and rows that a dropped or exchanged partition takes along or brings";
    }

  private:
    static Result<void> find_triggers(sql::Connection& connection, const VotesOptions& options,
                                      FoundTriggers& found) {
        static const sql::Statement kFind{sql::mysql_catalog()["triggers"]};
        static const sql::Statement kServer{sql::mysql_catalog()["is_mariadb"]};
        const sql::RowVisitor see_server = [&](const sql::Row& row) -> Result<void> {
            found.run_for_ignored = row.integer(0) != 0;
            return {};
        };
        HOTCOUNT_TRY(connection.query(kServer, {}, see_server));
        const Names names{options};
        std::vector<Seen> all;
        bool is_same_owner = true;
        std::string owner;
        bool writing = false;
        bool hides = false;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            const std::string name{row.text(0)};
            const std::size_t i = names.find(name);
            const bool named = i < names.all.size();
            const std::string text{row.text(4)};
            const bool counts = text.find(kOthers) != std::string::npos;
            const bool on_votes = row.integer(2) != 0 || row.integer(3) != 0;
            if (named && text.empty()) {
                hides = true;
            } else if (named && !counts) {
                found.taken = "trigger " + name;
            } else if (named && row.integer(i < kEvents.size() ? 2 : 3) == 0) {
                found.refused = "trigger " + name + " counts the votes of table " +
                                std::string{row.text(1)} +
                                " and has the name that one of this table needs: DROP TRIGGER it, "
                                "or call create_tables() for that table, which renames it";
            } else if (counts && on_votes) {
                found.ours.push_back(name);
                if (owner.empty()) owner = row.text(5);
                if (owner != row.text(5)) is_same_owner = false;
                if (row.integer(6) == 0) found.are_anothers = true;
                all.push_back({i, plain(text)});
                if (row.integer(7) != 0) writing = true;
            }
            return {};
        };
        HOTCOUNT_TRY(
            connection.query(kFind,
                             {std::string_view{names.schema}, std::string_view{names.table},
                              std::string_view{names.anonymous}},
                             see));
        if (!found.taken.empty()) return {};
        if (found.ours.empty()) return find_hidden(connection, options, hides, found);
        const auto form = writing ? OutsideWrites::count : OutsideWrites::deletes;
        const bool whole = is_same_owner && fit(all, form, options, found.run_for_ignored);
        (whole ? found.form : found.stale) = form;
        return {};
    }

    struct Seen {
        std::size_t which;  // Index in Names::all.
        std::string text;
    };

    // Triggers of a strategy that counts elsewhere lack the branch for this one's place. A
    // superfluous branch only takes time.
    static bool fit(const std::vector<Seen>& all, OutsideWrites form, const VotesOptions& options,
                    bool for_ignored) {
        const VoteNames n{options, sql::mysql_grammar()};
        std::vector<CountPlace> places{place_of(options)};
        if (places.front() == CountPlace::journal) {
            places.insert(places.end(), {CountPlace::item, CountPlace::cache});
        }
        return std::any_of(places.begin(), places.end(), [&](CountPlace place) {
            std::size_t wanted = 0;
            for (std::size_t i = 0; i < 2 * kEvents.size(); ++i) {
                if (is_wanted(form, event_of(i), place)) ++wanted;
            }
            return all.size() == wanted &&
                   std::all_of(all.begin(), all.end(), [&](const Seen& one) {
                       return one.which < 2 * kEvents.size() &&
                              is_wanted(form, event_of(one.which), place) &&
                              one.text == plain(text_of(names_of(n, one.which), place,
                                                        event_of(one.which), for_ignored));
                   });
        });
    }

    // The mark tells the form of hidden triggers. `shown`: the server shows them without their text.
    static Result<void> find_hidden(sql::Connection& connection, const VotesOptions& options,
                                    bool shown, FoundTriggers& found) {
        static const sql::Statement kMayBe{sql::mysql_catalog()["may_hide_triggers"]};
        if (!shown && found.run_for_ignored) return {};
        const Names names{options};
        const auto meta = sql::TableName::of(options.vote_table).beside("_meta");
        bool may_be = false;
        const sql::RowVisitor see_table = [&](const sql::Row& row) -> Result<void> {
            may_be = row.integer(0) != 0;
            return {};
        };
        HOTCOUNT_TRY(
            connection.query(kMayBe,
                             {std::string_view{meta.schema}, std::string_view{meta.name},
                              std::string_view{names.table}, static_cast<std::int64_t>(shown)},
                             see_table));
        if (!may_be) return {};
        const CountPlace place = place_of(options);
        OutsideWrites form = OutsideWrites::none;
        bool fits = place == CountPlace::journal;  // fit()
        const sql::RowVisitor see_mark = [&](const sql::Row& row) -> Result<void> {
            if (row.text(0) == "counted_in" && row.text(1) == to_string(place)) fits = true;
            if (row.text(0) != "outside_writes") return {};
            form = row.text(1) == to_string(OutsideWrites::count) ? OutsideWrites::count
                                                                  : OutsideWrites::deletes;
            return {};
        };
        const sql::Statement marks{
            triggers(VoteNames{options, sql::mysql_grammar()}, place, false)["marks"]};
        HOTCOUNT_TRY(connection.query(marks, {}, see_mark));
        if (form == OutsideWrites::none) return {};
        found.are_hidden = true;
        found.ours = {names.all.begin(), names.all.end()};
        (fits ? found.form : found.stale) = form;
        return {};
    }

    static Result<void> find_cascades(sql::Connection& connection, const VotesOptions& options,
                                      FoundTriggers& found) {
        static const sql::Statement kCascades{sql::mysql_catalog()["cascades"]};
        const auto votes = sql::TableName::of(options.vote_table);
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            note_key(found, std::string{row.text(0)}, row.text(1), row.text(2),
                     row.integer(3) != 0);
            return {};
        };
        HOTCOUNT_TRY(connection.query(kCascades,
                                      {std::string_view{votes.schema}, std::string_view{votes.name},
                                       std::string_view{options.vote_item}},
                                      see));
        return {};
    }
};

}  // namespace

const OutsideTriggers& mysql_outside_triggers() {
    static const MysqlOutsideTriggers kTriggers;
    return kTriggers;
}

}  // namespace hotcount
