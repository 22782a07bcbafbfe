// Triggers of the vote tables on PostgreSQL.
//
// Our own INSERTs and DELETEs begin with WITH hc_own (Grammar::own_write()), and the triggers look for
// that at the beginning of the text that the client sent: no data can stand there. So the mark covers
// one statement, whatever pooler stands between, and costs nothing where there are no triggers. Below
// another trigger (a cascade, or one of the application's) a row is always counted.
//
// The triggers' WHEN tests each row before an event is queued, so a vote costs one test. Transition
// tables would be filled for hotcount's own statements too; only the trigger for DELETE has one, because
// a vote never deletes. On a partitioned table a cascade deletes from the partition itself, where a
// statement trigger of the parent does not run: there every trigger is a row trigger.
//
// The function is SECURITY DEFINER, because whoever writes votes may lack rights on the journal. Nobody
// else may make a trigger of it, and it finds names in pg_catalog first.
#include "votes/tables/outside_triggers.hpp"

#include <algorithm>
#include <array>

#include "ballots.hpp"
#include "dialect.hpp"
#include "sql/dialect.hpp"
#include "sql/table_name.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {
namespace {

// The first words of the function's body, by which it is told from somebody else's.
constexpr std::string_view kOurs = "-- hotcount: counts what others write";

std::string function_name(const VotesOptions& options) {
    return sql::TableName::of(options.vote_table).beside("_hotcount").sql();
}

// The changes of a statement or a row as arrays of items, in their order, and of differences.
std::string gather(const VotesOptions& options, const std::string& source) {
    return "SELECT array_agg(CAST(c.item AS " + std::string{element_type(options.item_type)} +
           ") ORDER BY c.item), array_agg(c.diff ORDER BY c.item) FROM (SELECT "
           "hc_c.item, CAST(SUM(hc_c.diff) AS bigint) AS diff FROM " +
           source + " WHERE hc_c.item IS NOT NULL GROUP BY 1 HAVING SUM(hc_c.diff) <> 0) AS c";
}

std::string function_text(const VotesOptions& options, const VoteNames& n) {
    const std::string ids = std::string{element_type(options.item_type)} + "[]";
    const std::string place =
        "SELECT value INTO hc_place FROM " + n.meta + " WHERE name = 'counted_in'";
    const std::string changes = "unnest(hc_items, hc_diffs) AS c (item, diff)";
    const auto value = [&](const std::string& row) { return "CAST(" + row + " AS numeric)"; };
    const auto removed = [&](const std::string& table) {
        return gather(options, "(SELECT " + n.vote_item + ", -" + value(n.value) + " FROM " +
                                   table + ") AS hc_c (item, diff)");
    };
    const std::string function = function_name(options);
    std::string text =
        "CREATE OR REPLACE FUNCTION " + function +
        "() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $hotcount$\n" +
        std::string{kOurs} + "\nDECLARE\n  hc_place text;\n  hc_items " + ids +
        ";\n  hc_diffs bigint[];\nBEGIN\n"
        "  IF TG_LEVEL = 'ROW' THEN\n    " +
        gather(options, "(VALUES (OLD." + n.vote_item + ", -" + value("OLD." + n.value) +
                            "), (NEW." + n.vote_item + ", " + value("NEW." + n.value) +
                            ")) AS hc_c (item, diff)") +
        " INTO hc_items, hc_diffs;\n  ELSIF TG_OP = 'DELETE' THEN\n    " + removed("hc_old") +
        " INTO hc_items, hc_diffs;\n  ELSE\n"
        // It removes rows that an older snapshot does not have.
        "    IF current_setting('transaction_isolation') <> 'read committed' THEN RAISE EXCEPTION "
        "'TRUNCATE of votes that hotcount counts needs READ COMMITTED' USING ERRCODE = '0A000'; "
        "END IF;\n    EXECUTE format(" +
        literal(removed("%s")) +
        ", CAST(TG_RELID AS regclass)) INTO hc_items, hc_diffs;\n  END IF;\n"
        "  IF hc_items IS NULL THEN RETURN NULL; END IF;\n"
        "  IF current_setting('transaction_isolation') = 'read committed' THEN " +
        place + "; ELSE " + place +
        // At these levels the mark may be moving, or be newer than the snapshot.
        " FOR SHARE SKIP LOCKED; IF NOT FOUND THEN RAISE EXCEPTION 'hotcount moves its counts' "
        "USING ERRCODE = '40001'; END IF; END IF;\n";
    if (!n.count.empty()) {
        text += "  IF hc_place = 'item' THEN\n";
        // Votes of an item that is gone: their key follows the item's, and the count is in its row.
        if (n.foreign_key) {
            text += "    IF TG_OP = 'UPDATE' THEN IF NOT EXISTS (SELECT FROM " + n.item +
                    " WHERE " + n.id + " = OLD." + n.vote_item +
                    ") THEN RETURN NULL; END IF; END IF;\n";
        }
        text += "    PERFORM 1 FROM " + n.item + " WHERE " + n.id + " = ANY (hc_items) ORDER BY " +
                n.id + " FOR NO KEY UPDATE;\n    UPDATE " + n.item + " AS hc_i SET " + n.count +
                " = COALESCE(hc_i." + n.count + ", 0) + c.diff FROM " + changes + " WHERE hc_i." +
                n.id + " = c.item;\n    RETURN NULL;\n  END IF;\n";
    }
    return text + "  IF hc_place = 'cache' THEN\n    INSERT INTO " + n.recount +
           " AS hc_r (item, asked) SELECT c.item, 1 FROM " + changes +
           " ON CONFLICT (item) DO UPDATE SET asked = hc_r.asked + 1;\n    RETURN NULL;\n  END "
           "IF;\n"
           "  INSERT INTO " +
           n.journal + " (item, diff) SELECT c.item, c.diff FROM " + changes +
           ";\n  RETURN NULL;\nEND $hotcount$;\nREVOKE ALL ON FUNCTION " + function +
           "() FROM PUBLIC;\n"
           // Names without a schema are this session's, not those of the session that deletes.
           "DO $hotcount$ BEGIN EXECUTE format('ALTER FUNCTION %s() SET search_path = %s', " +
           literal(function) +
           ", (SELECT string_agg(quote_ident(s), ', ') FROM unnest(CAST('{pg_catalog}' AS name[]) "
           "|| "
           "array_remove(current_schemas(false), 'pg_catalog') || CAST('{pg_temp}' AS name[])) AS "
           "s)); END $hotcount$;\n";
}

// A client may put comments before a statement.
constexpr std::string_view kOthers =
    "((current_query() LIKE 'WITH hc_own%' OR (current_query() LIKE '%WITH hc_own%' AND "
    "current_query() ~ '^([[:space:]]|/[*]([^*]|[*]+[^*/])*[*]+/)*WITH hc_own')) AND "
    "pg_trigger_depth() = 0) IS NOT TRUE";

// PostgreSQL's triggers are named within their table.
constexpr std::array<const char*, 4> kEvents{"deleted", "emptied", "inserted", "updated"};
constexpr std::size_t kOfDeletes = 2;

class PostgresOutsideTriggers final : public OutsideTriggers {
  public:
    Result<FoundTriggers> find(sql::Connection& connection,
                               const VotesOptions& options) const override {
        FoundTriggers found;
        HOTCOUNT_TRY(find_rights(connection, options, found));
        HOTCOUNT_TRY(find_triggers(connection, options, found));
        HOTCOUNT_TRY(find_cascades(connection, options, found));
        return found;
    }

    std::string own_write(const std::string& statement) const override {
        return std::string{sql::postgres_grammar().own_write()} + statement;
    }

    std::string script(const VotesOptions& options, const VoteNames& n, OutsideWrites form,
                       const FoundTriggers& found) const override {
        std::string text;
        const std::array tables{n.vote, n.anonymous_vote};
        if (found.form != OutsideWrites::none || !found.ours.empty()) {
            // Dropping takes this lock: at once, because a weaker one first would meet those who
            // read and then write in a deadlock. All wait behind it, so not for long.
            text += "SET LOCAL lock_timeout = '2s';\nLOCK TABLE " + n.vote + ", " +
                    n.anonymous_vote + " IN ACCESS EXCLUSIVE MODE;\n";
        }
        if (form != OutsideWrites::none) text += function_text(options, n);
        for (const std::string& table : tables) {
            for (const char* event : kEvents) {
                text += "DROP TRIGGER IF EXISTS hotcount_" + std::string{event} + " ON " + table +
                        ";\n";
            }
            if (form == OutsideWrites::none) continue;
            const bool by_rows = found.is_partitioned && table == n.vote;
            const auto add = [&](const char* event, const std::string& when,
                                 const std::string& rest) {
                text += "CREATE TRIGGER hotcount_" + std::string{event} + " " + when + " ON " +
                        table + rest + " EXECUTE FUNCTION " + function_name(options) + "();\n";
            };
            const std::string others = " WHEN (" + std::string{kOthers} + ")";
            add("deleted", "AFTER DELETE",
                by_rows ? " FOR EACH ROW" + others
                        : " REFERENCING OLD TABLE AS hc_old FOR EACH STATEMENT" + others);
            add("emptied", "BEFORE TRUNCATE", " FOR EACH STATEMENT");
            if (form != OutsideWrites::count) continue;
            add("inserted", "AFTER INSERT",
                " FOR EACH ROW WHEN (NEW." + n.value + " <> 0 AND " + std::string{kOthers} + ")");
            add("updated", "AFTER UPDATE",
                " FOR EACH ROW WHEN ((OLD." + n.vote_item + ", OLD." + n.value +
                    ") IS DISTINCT FROM (NEW." + n.vote_item + ", NEW." + n.value + ") AND " +
                    std::string{kOthers} + ")");
        }
        if (form == OutsideWrites::none) {
            text += "DROP FUNCTION IF EXISTS " + function_name(options) + "();\n";
        }
        return text + outside_mark(n, sql::postgres_grammar(), form);
    }

    std::string_view blind_to(OutsideWrites form) const override {
        static constexpr std::string_view kAlways =
            "rows written with session_replication_role = replica or with triggers disabled, and "
            "partitions that are attached, detached or truncated by themselves";
        static const std::string kForDeletes =
            "inserted and updated rows, COPY, " + std::string{kAlways};
        return form == OutsideWrites::deletes ? std::string_view{kForDeletes} : kAlways;
    }

  private:
    static Result<void> find_rights(sql::Connection& connection, const VotesOptions& options,
                                    FoundTriggers& found) {
        static const sql::Statement kRights{
            "SELECT CAST(c.relkind = 'p' AS int), CAST(has_table_privilege(c.oid, 'TRIGGER') AS "
            "int), CAST(has_schema_privilege(c.relnamespace, 'CREATE') AS int), "
            "CAST(COALESCE(has_table_privilege(to_regclass(CAST(?2 AS text)), 'INSERT'), true) AS "
            "int) FROM pg_class AS c WHERE c.oid = to_regclass(CAST(?1 AS text))"};
        const auto votes = sql::TableName::of(options.vote_table);
        const std::string table = votes.sql();
        const std::string journal = votes.beside("_journal").sql();
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            found.is_partitioned = row.integer(0) != 0;
            std::string lacks;
            if (row.integer(1) == 0) lacks = "TRIGGER privilege on table " + options.vote_table;
            if (row.integer(2) == 0) lacks = "CREATE privilege on the schema of the votes";
            if (row.integer(3) == 0) lacks = "INSERT privilege on table " + journal;
            if (!lacks.empty()) {
                found.refused = "this role has no " + lacks +
                                ": the owner grants it, or runs what migration() prints";
            }
            return {};
        };
        HOTCOUNT_TRY(
            connection.query(kRights, {std::string_view{table}, std::string_view{journal}}, see));
        return {};
    }

    static Result<void> find_triggers(sql::Connection& connection, const VotesOptions& options,
                                      FoundTriggers& found) {
        // Name, ours, works (enabled, and its function looks in the vote table's schema), and
        // whether this role may replace it.
        static const sql::Statement kTriggers{
            "SELECT CAST(t.tgname AS text), CAST(strpos(p.prosrc, CAST(?3 AS text)) > 0 AS int), "
            "CAST(t.tgenabled IN ('O', 'A') AND strpos(array_to_string(p.proconfig, ','), "
            "quote_ident(s.nspname)) > 0 AS int), CAST(pg_has_role(c.relowner, 'USAGE') AS int) "
            "FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid JOIN pg_class AS c ON "
            "c.oid = t.tgrelid JOIN pg_namespace AS s ON s.oid = c.relnamespace WHERE t.tgrelid IN "
            "(to_regclass(CAST(?1 AS text)), to_regclass(CAST(?2 AS text))) AND t.tgname LIKE "
            "'hotcount%'"};
        static const sql::Statement kFunction{
            "SELECT CAST(CAST(p.oid AS regprocedure) AS text) FROM pg_proc AS p WHERE p.oid = "
            "CAST(to_regproc(CAST(?1 AS text)) AS oid) AND strpos(p.prosrc, CAST(?2 AS text)) = 0"};
        const auto votes = sql::TableName::of(options.vote_table);
        const std::string table = votes.sql();
        const std::string anonymous = votes.beside("_anonymous").sql();
        std::array<std::size_t, kEvents.size()> working{};
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            const std::string name{row.text(0)};
            for (std::size_t event = 0; event < kEvents.size(); ++event) {
                if (name != std::string{"hotcount_"} + kEvents.at(event)) continue;
                if (row.integer(1) == 0) {
                    found.taken = "trigger " + name + " of table " + options.vote_table;
                    continue;
                }
                found.ours.push_back(name);
                if (row.integer(2) != 0) ++working.at(event);
                if (row.integer(3) == 0) {
                    found.refused =
                        "only the owner of table " + options.vote_table + " replaces its triggers";
                }
            }
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            kTriggers, {std::string_view{table}, std::string_view{anonymous}, kOurs}, see));
        if (!found.ours.empty()) {
            constexpr std::size_t kTables = 2;
            const bool counts = std::find(found.ours.begin(), found.ours.end(),
                                          "hotcount_inserted") != found.ours.end();
            const std::size_t events = counts ? kEvents.size() : kOfDeletes;
            const OutsideWrites form = counts ? OutsideWrites::count : OutsideWrites::deletes;
            const bool whole = std::all_of(working.begin(), working.begin() + events,
                                           [](std::size_t each) { return each == kTables; });
            if (whole) found.form = form;
        }
        const std::string function = function_name(options);
        const sql::RowVisitor see_function = [&](const sql::Row& row) -> Result<void> {
            found.taken = "function " + std::string{row.text(0)};
            return {};
        };
        HOTCOUNT_TRY(
            connection.query(kFunction, {std::string_view{function}, kOurs}, see_function));
        return {};
    }

    static Result<void> find_cascades(sql::Connection& connection, const VotesOptions& options,
                                      FoundTriggers& found) {
        static const sql::Statement kCascades{
            "SELECT quote_ident(f.conname), CAST(f.confdeltype AS text), CAST(f.confupdtype AS "
            "text), CAST(EXISTS (SELECT FROM pg_attribute AS a WHERE a.attrelid = f.conrelid AND "
            "a.attnum = ANY (f.conkey) AND a.attname = CAST(?2 AS name)) AS int), "
            "CAST(f.confrelid = f.conrelid AS int) FROM pg_constraint AS f WHERE f.contype = 'f' "
            "AND f.conrelid = to_regclass(CAST(?1 AS text)) ORDER BY f.conname"};
        const std::string table = sql::TableName::of(options.vote_table).sql();
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            const auto rule = [](std::string_view code) -> std::string_view {
                if (code == "c") return "CASCADE";
                if (code == "n") return "SET NULL";
                return code == "d" ? "SET DEFAULT" : "";
            };
            const std::string name{row.text(0)};
            note_key(found, name, rule(row.text(1)), rule(row.text(2)), row.integer(3) != 0);
            if (row.text(1) == "c" && row.integer(4) != 0) {
                found.refused = "foreign key " + name +
                                " refers to the vote table itself, and its cascades cannot be "
                                "told from deletions of hotcount's";
            }
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            kCascades, {std::string_view{table}, std::string_view{options.vote_item}}, see));
        return {};
    }
};

}  // namespace

const OutsideTriggers& postgres_outside_triggers() {
    static const PostgresOutsideTriggers kTriggers;
    return kTriggers;
}

}  // namespace hotcount
