// Triggers of the vote tables on MariaDB and MySQL.
//
// Our own sessions carry a mark, a variable that MysqlConnection::set_up() sets: they run no statement of
// others. A statement of ours in the application's session has a sql_select_limit that nobody else sets,
// for itself alone: own_write().
//
// A trigger locks the mark `outside_writes`, which lock_all() locks too: the counts move when no
// transaction is under way that has counted in the place of before. Not `counted_in`: it may be missing,
// and then READ COMMITTED locks nothing and REPEATABLE READ a gap, where the move meets a deadlock.
//
// Differences are decimals, so that one out of 64 bits is refused and a column may be unsigned.
#include "votes/tables/outside_triggers.hpp"

#include <algorithm>
#include <array>

#include "dialect.hpp"
#include "sql/dialect.hpp"
#include "sql/table_name.hpp"
#include "votes/tables/adoption.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

// Of both vote tables. The last one keeps the item for the counting after it: two statements that have
// shared its row by their foreign key could not both change its count.
constexpr std::array<std::string_view, 4> kEvents{"deleted", "inserted", "updated", "inserting"};
// As information_schema has the name of this session's account.
constexpr const char* kAccount = "CONCAT('''', REPLACE(CURRENT_USER(), '@', '''@'''), '''')";

// It limits nothing: a session has one more by default.
constexpr const char* kOwnLimit = "sql_select_limit = 18446744073709551614";
// In the body of each, by which it is told from somebody else's. A client may take comments away. Not
// IS NULL: sessions share a trigger, and in MySQL one of ours would leave it FALSE for all. Not AND: each
// row would look the second variable up too, a tenth of what the trigger costs a batch on MariaDB.
constexpr std::string_view kOthers =
    "NOT @hotcount_own <=> 1 THEN IF NOT @@session.sql_select_limit = 18446744073709551614";

// The names of all that there may be: kEvents of each of both tables.
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

// hc_place is where the counts are. Not DO, which passes over an error: the change would be rolled back
// by a deadlock, and counted.
std::string in_place(const VoteNames& n, const std::string& then) {
    const std::string mark = "SET hc_place = (SELECT value FROM " + n.meta + " WHERE name = '";
    const std::string held = "' LOCK IN SHARE MODE); ";
    return "BEGIN DECLARE hc_place VARBINARY(1000); " + mark + "outside_writes" + held + mark +
           "counted_in" + held + then + " END;";
}

// A vote of ours opens every table that stands here, so there is one place beside the journal.
std::string count(const VoteNames& n, CountPlace place, const std::string& item,
                  const std::string& difference) {
    const std::string note =
        "INSERT INTO " + n.journal + " (item, diff) VALUES (" + item + ", " + difference + "); ";
    std::string text = "IF " + item + " IS NOT NULL AND " + difference + " <> 0 THEN ";
    if (place == CountPlace::journal) return text + note + "END IF;";
    text += "CASE hc_place ";
    if (place == CountPlace::item) {
        text += "WHEN 'item' THEN UPDATE " + n.item + " SET " + n.count + " = COALESCE(" + n.count +
                ", 0) + " + difference + " WHERE " + n.id + " = " + item;
    } else {
        text += "WHEN 'cache' THEN INSERT INTO " + n.recount + " (item, asked) VALUES (" + item +
                ", 1) ON DUPLICATE KEY UPDATE asked = asked + 1";
    }
    return text + "; ELSE " + note + "END CASE; END IF;";
}

// Where the trigger runs for a row that the statement leaves as it was. A lock reads what is there now,
// and no snapshot.
std::string unless_left(const VoteNames& n) {
    const auto same = [](const std::string& column) { return column + " = OLD." + column; };
    return " AND NOT EXISTS (SELECT 1 FROM " + n.vote + " WHERE " + same(n.vote_item) + " AND " +
           same(n.vote_user) + " AND " + same(n.value) + " LOCK IN SHARE MODE)";
}

std::string body(const VoteNames& n, CountPlace place, std::string_view event, bool for_ignored) {
    const std::string old_item = "OLD." + n.vote_item;
    const std::string new_item = "NEW." + n.vote_item;
    const auto value_of = [&](const char* row) {
        return "CAST(COALESCE(" + std::string{row} + "." + n.value + ", 0) AS DECIMAL(20))";
    };
    const std::string was = value_of("OLD");
    const std::string is = value_of("NEW");
    const std::string deleted = count(n, place, old_item, "-" + was);
    const std::string inserted = count(n, place, new_item, is);
    if (event == "deleted") return in_place(n, deleted);
    if (event == "inserted") return in_place(n, inserted);
    if (event == "inserting") {
        return in_place(n, "IF hc_place = 'item' THEN SET hc_place = (SELECT 1 FROM " + n.item +
                               " WHERE " + n.id + " = " + new_item + " FOR UPDATE); END IF;");
    }
    const std::string same_item = old_item + " <=> " + new_item;
    return "IF NOT (" + same_item + " AND " + was + " = " + is + ")" +
           (for_ignored ? unless_left(n) : "") + " THEN " +
           in_place(n, "IF " + same_item + " THEN " +
                           count(n, place, new_item, "(" + is + " - " + was + ")") + " ELSE " +
                           deleted + " " + inserted + " END IF;") +
           " END IF;";
}

std::string text_of(const VoteNames& n, CountPlace place, std::string_view event,
                    bool for_ignored) {
    return "IF " + std::string{kOthers} + " THEN " + body(n, place, event, for_ignored) +
           " END IF; END IF";
}

// Without quotation marks, which a client's script has others of.
std::string plain(std::string text) {
    std::erase_if(text, [](char c) { return c == '"' || c == '`'; });
    return text.substr(0, text.find_last_not_of(" ;\n") + 1);
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

    // By a statement that names a trigger which does not exist: the server looks at the rights first.
    Result<void> try_rights(sql::Connection& connection,
                            const VotesOptions& options) const override {
        const Names names{options};
        const auto tried = connection.run_script(
            "CREATE TRIGGER " + sql::TableName{names.schema, names.all.back()}.sql() +
            " AFTER DELETE ON " + sql::TableName::of(options.vote_table).sql() +
            " FOR EACH ROW FOLLOWS " + sql::quote_identifier("no trigger of hotcount") +
            " SET @hotcount = 1");
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

    // Whether those of another account run: its rights are looked at when one of them does. The vote is
    // of no item, for which it would wait.
    bool have_rights(sql::Connection& connection, const VotesOptions& options) const override {
        const VoteNames n{options, sql::mysql_grammar()};
        const std::string id = options.item_type == IdType::integer ? "0"
                               : options.item_type == IdType::text
                                   ? "''"
                                   : "'00000000-0000-0000-0000-000000000000'";
        static constexpr const char* kUnchecked = "foreign_key_checks = ";
        const auto tried = connection.run_script(
            "/*M! SET STATEMENT " + std::string{kUnchecked} + "0 FOR */ INSERT /*+ SET_VAR(" +
            kUnchecked + "OFF) */ INTO " + n.anonymous_vote + " (" + n.vote_item + ", " +
            n.anonymous_user + ", " + n.value + ") VALUES (" + id + ", '', 0);\nDELETE FROM " +
            n.anonymous_vote + " WHERE " + n.vote_item + " = " + id + " AND " + n.anonymous_user +
            " = ''");
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
        const auto drop = [&](const std::string& name) {
            const sql::TableName full{names.schema, name};
            text += "DROP TRIGGER IF EXISTS " + full.sql() + ";\n";
        };
        for (const std::string& name : found.ours) {
            if (!has(names.all, name)) drop(name);
        }
        for (std::size_t i = 0; i < names.all.size(); ++i) {
            const std::string& name = names.all[i];
            const bool wanted = is_wanted(form, event_of(i), place);
            const bool there = has(found.ours, name);
            // Others go on counting: a change of the schema cannot be rolled back.
            const bool stays = wanted && there && found.stale == OutsideWrites::none;
            if (there && !stays) drop(name);
            if (!wanted || stays) continue;
            const VoteNames of = names_of(n, i);
            text += "CREATE TRIGGER /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ " +
                    sql::TableName{names.schema, name}.sql() + " " +
                    std::string{when(event_of(i))} + " ON " + of.vote + " FOR EACH ROW " +
                    text_of(of, place, event_of(i), found.run_for_ignored) + ";\n";
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
    // To an account without TRIGGER, MariaDB shows triggers without a text, and MySQL none.
    static Result<void> find_triggers(sql::Connection& connection, const VotesOptions& options,
                                      FoundTriggers& found) {
        static const sql::Statement kFind{
            "SELECT TRIGGER_NAME, EVENT_OBJECT_TABLE, EVENT_OBJECT_TABLE = ?2, EVENT_OBJECT_TABLE "
            "= ?3, COALESCE(ACTION_STATEMENT, ''), COALESCE(DEFINER, ''), DEFINER <=> "
            "CURRENT_USER(), EVENT_MANIPULATION <> 'DELETE' FROM information_schema.TRIGGERS WHERE "
            "TRIGGER_SCHEMA = COALESCE(NULLIF(?1, ''), DATABASE()) AND (EVENT_OBJECT_TABLE IN (?2, "
            "?3) OR TRIGGER_NAME LIKE '%hotcount%') ORDER BY TRIGGER_NAME"};
        static const sql::Statement kServer{"SELECT 0 /*M! + 1 */"};
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
                                "or call create_tables() for that table, which names it anew";
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
        std::size_t which;  // Of Names::all.
        std::string text;
    };

    // Those of a strategy that counts elsewhere lack its branch; one too many only takes time.
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

    // Which triggers there are is then what the marks say. `shown`: without a text.
    static Result<void> find_hidden(sql::Connection& connection, const VotesOptions& options,
                                    bool shown, FoundTriggers& found) {
        // MySQL's triggers are hidden if there are any; an account that has TRIGGER sees that none is.
        static const sql::Statement kMayBe{
            "SELECT COUNT(*) FROM information_schema.TABLES AS hc_t WHERE hc_t.TABLE_SCHEMA = "
            "COALESCE(NULLIF(?1, ''), DATABASE()) AND hc_t.TABLE_NAME = ?2 AND (?4 = 1 OR NOT "
            "EXISTS (SELECT 1 FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = "
            "'TRIGGER' AND GRANTEE = " +
            std::string{kAccount} +
            ") AND NOT EXISTS (SELECT 1 FROM information_schema.SCHEMA_PRIVILEGES WHERE "
            "PRIVILEGE_TYPE = 'TRIGGER' AND GRANTEE = " +
            kAccount +
            " AND hc_t.TABLE_SCHEMA LIKE TABLE_SCHEMA) AND NOT EXISTS (SELECT 1 FROM "
            "information_schema.TABLE_PRIVILEGES WHERE PRIVILEGE_TYPE = 'TRIGGER' AND GRANTEE = " +
            kAccount + " AND TABLE_SCHEMA = hc_t.TABLE_SCHEMA AND TABLE_NAME = ?3))"};
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
        const sql::Statement marks{"SELECT name, value FROM " + meta.sql() +
                                   " WHERE name IN ('counted_in', 'outside_writes')"};
        HOTCOUNT_TRY(connection.query(marks, {}, see_mark));
        if (form == OutsideWrites::none) return {};
        found.are_hidden = true;
        found.ours = {names.all.begin(), names.all.end()};
        (fits ? found.form : found.stale) = form;
        return {};
    }

    static Result<void> find_cascades(sql::Connection& connection, const VotesOptions& options,
                                      FoundTriggers& found) {
        static const sql::Statement kCascades{
            "SELECT hc_r.CONSTRAINT_NAME, hc_r.DELETE_RULE, hc_r.UPDATE_RULE, MAX(hc_k.COLUMN_NAME "
            "= ?3) FROM information_schema.REFERENTIAL_CONSTRAINTS AS hc_r JOIN "
            "information_schema.KEY_COLUMN_USAGE AS hc_k ON hc_k.CONSTRAINT_SCHEMA = "
            "hc_r.CONSTRAINT_SCHEMA AND hc_k.CONSTRAINT_NAME = hc_r.CONSTRAINT_NAME AND "
            "hc_k.TABLE_NAME = hc_r.TABLE_NAME WHERE hc_r.CONSTRAINT_SCHEMA = "
            "COALESCE(NULLIF(?1, ''), DATABASE()) AND hc_r.TABLE_NAME = ?2 GROUP BY "
            "hc_r.CONSTRAINT_NAME, hc_r.DELETE_RULE, hc_r.UPDATE_RULE ORDER BY "
            "hc_r.CONSTRAINT_NAME"};
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
