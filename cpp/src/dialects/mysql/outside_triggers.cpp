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
constexpr std::array kEvents{"deleted", "inserted", "updated", "inserting"};
constexpr std::array kTables{"", "_anonymous"};

// It limits nothing: a session has one more by default.
constexpr const char* kOwnLimit = "sql_select_limit = 18446744073709551614";
// In the body of each, by which it is told from somebody else's. A client may take comments away. Not
// IS NULL: sessions share a trigger, and in MySQL one of ours would leave it FALSE for all.
constexpr std::string_view kOthers =
    "NOT @hotcount_own <=> 1 AND NOT @@session.sql_select_limit = 18446744073709551614";

sql::TableName trigger(const VotesOptions& options, const std::string& suffix,
                       const std::string& event) {
    return sql::TableName::of(options.vote_table).beside(suffix + "_hotcount_" + event);
}

// hc_place is where the counts are. Not DO, which passes over an error: the change would be rolled back
// by a deadlock, and counted.
std::string in_place(const VoteNames& n, const std::string& then) {
    const std::string mark = "SET hc_place = (SELECT value FROM " + n.meta + " WHERE name = '";
    const std::string held = "' LOCK IN SHARE MODE); ";
    return "BEGIN DECLARE hc_place VARBINARY(1000); " + mark + "outside_writes" + held + mark +
           "counted_in" + held + then + " END;";
}

constexpr const char* kInItem = "WHEN 'item'";
constexpr const char* kInCache = "WHEN 'cache'";

// A vote of ours opens every table that stands here, so there is one place beside the journal.
std::string count(const VoteNames& n, CountPlace place, const std::string& item,
                  const std::string& difference) {
    const std::string note =
        "INSERT INTO " + n.journal + " (item, diff) VALUES (" + item + ", " + difference + "); ";
    std::string text = "IF " + item + " IS NOT NULL AND " + difference + " <> 0 THEN ";
    if (place == CountPlace::journal) return text + note + "END IF;";
    text += "CASE hc_place ";
    if (place == CountPlace::item) {
        text += std::string{kInItem} + " THEN UPDATE " + n.item + " SET " + n.count +
                " = COALESCE(" + n.count + ", 0) + " + difference + " WHERE " + n.id + " = " + item;
    } else {
        text += std::string{kInCache} + " THEN INSERT INTO " + n.recount +
                " (item, asked) VALUES (" + item + ", 1) ON DUPLICATE KEY UPDATE asked = asked + 1";
    }
    return text + "; ELSE " + note + "END CASE; END IF;";
}

std::string body(const VoteNames& n, CountPlace place, std::string_view event) {
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
    return "IF NOT (" + same_item + " AND " + was + " = " + is + ") THEN " +
           in_place(n, "IF " + same_item + " THEN " +
                           count(n, place, new_item, "(" + is + " - " + was + ")") + " ELSE " +
                           deleted + " " + inserted + " END IF;") +
           " END IF;";
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
        const auto tried = connection.run_script(
            "CREATE TRIGGER " + trigger(options, "_anonymous", "inserting").sql() +
            " AFTER DELETE ON " + sql::TableName::of(options.vote_table).sql() +
            " FOR EACH ROW FOLLOWS " + sql::quote_identifier("no trigger of hotcount") +
            " SET @hotcount = 1");
        if (tried) return {};
        const std::string& code = tried.error().server_code;
        // ER_REFERENCED_TRG_DOES_NOT_EXIST of MariaDB and of MySQL, ER_NO_SUCH_TABLE
        if (code == "4031" || code == "3011" || code == "1146") return {};
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

    std::string script(const VotesOptions& options, const VoteNames& n, OutsideWrites form,
                       const FoundTriggers& found) const override {
        const CountPlace place = place_of(options);
        // Triggers lock its row.
        const std::string mark = outside_mark(n, sql::mysql_grammar(), form);
        std::string text = form == OutsideWrites::none ? "" : mark;
        for (const char* const suffix : kTables) {
            const VoteNames of = *suffix == '\0' ? n : n.anonymous(sql::mysql_grammar());
            for (const std::string_view event : kEvents) {
                const bool wanted = form != OutsideWrites::none &&
                                    (event == "deleted" || form == OutsideWrites::count) &&
                                    (event != "inserting" || place == CountPlace::item);
                const auto name = trigger(options, suffix, std::string{event});
                const bool there = has(found.ours, name.name);
                // Others go on counting: a change of the schema cannot be rolled back.
                const bool stays = wanted && there && found.stale == OutsideWrites::none;
                if (there && !stays) text += "DROP TRIGGER IF EXISTS " + name.sql() + ";\n";
                if (!wanted || stays) continue;
                text += "CREATE TRIGGER /*M! IF NOT EXISTS */ /*!80029 IF NOT EXISTS */ " +
                        name.sql() + " " + std::string{when(event)} + " ON " + of.vote +
                        " FOR EACH ROW IF " + std::string{kOthers} + " THEN " +
                        body(of, place, event) + " END IF;\n";
            }
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
        // To an account without TRIGGER, MariaDB shows triggers with an empty text, and MySQL none.
        static const sql::Statement kFind{
            "SELECT TRIGGER_NAME, EVENT_OBJECT_TABLE = ?2 AND INSTR(ACTION_STATEMENT, ?3) > 0, "
            "INSTR(ACTION_STATEMENT, ?8) > 0 FROM "
            "information_schema.TRIGGERS WHERE TRIGGER_SCHEMA = COALESCE(NULLIF(?1, ''), "
            "DATABASE()) AND TRIGGER_NAME IN (?4, ?5, ?6, ?7) AND ACTION_STATEMENT <> ''"};
        // Those of a strategy that counts elsewhere lack its branch; one too many only takes time.
        const CountPlace place = place_of(options);
        const std::string_view branch = place == CountPlace::item    ? kInItem
                                        : place == CountPlace::cache ? kInCache
                                                                     : "";
        bool fits = true;
        std::size_t deleting = 0;
        std::size_t writing = 0;
        for (const char* const suffix : kTables) {
            const auto table = sql::TableName::of(options.vote_table).beside(suffix);
            std::array<std::string, kEvents.size()> names;
            for (std::size_t i = 0; i < names.size(); ++i) {
                names[i] = trigger(options, suffix, kEvents[i]).name;
            }
            const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
                const std::string_view name = row.text(0);
                if (row.integer(1) == 0) {
                    found.taken = "trigger " + std::string{name};
                    return {};
                }
                found.ours.emplace_back(name);
                if (name != names[3] && row.integer(2) == 0) fits = false;
                if (name == names[0]) ++deleting;
                if (name == names[1] || name == names[2]) ++writing;
                return {};
            };
            HOTCOUNT_TRY(
                connection.query(kFind,
                                 {std::string_view{table.schema}, std::string_view{table.name},
                                  kOthers, std::string_view{names[0]}, std::string_view{names[1]},
                                  std::string_view{names[2]}, std::string_view{names[3]}, branch},
                                 see));
        }
        if (!found.taken.empty() || found.ours.empty()) return {};
        const auto form = writing > 0 ? OutsideWrites::count : OutsideWrites::deletes;
        const bool whole =
            fits && deleting == kTables.size() && (writing == 0 || writing == 2 * kTables.size());
        (whole ? found.form : found.stale) = form;
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
