// Triggers of the vote tables on PostgreSQL.
//
// Our own statements have the alias hc_own where they write to a vote table, and the triggers look for
// that word in the text that the client sent. So the mark covers one statement, whatever pooler stands
// between, and costs no statement anything where there are no triggers. Below another trigger (a
// cascade, or one of the application's) a row is always counted.
//
// Rows are tested by the triggers' WHEN, which calls no function and queues no event: a vote costs one
// test. Transition tables would be filled for our own statements too, and are so only for DELETE, which
// a vote never says. On a partitioned table a cascade deletes from the partition itself, where a
// statement's trigger of the parent does not run: there all of them are of rows.
#include "votes/tables/outside_triggers.hpp"

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
std::string gather(const VotesOptions& options, const std::string& item,
                   const std::string& source) {
    return "SELECT array_agg(CAST(c.item AS " + std::string{element_type(options.item_type)} +
           ") ORDER BY c.item), array_agg(c.diff ORDER BY c.item) FROM (SELECT " + item +
           " AS item, CAST(SUM(hc_c.diff) AS bigint) AS diff FROM " + source + " WHERE " + item +
           " IS NOT NULL GROUP BY 1 HAVING SUM(hc_c.diff) <> 0) AS c";
}

std::string function_text(const VotesOptions& options, const VoteNames& n) {
    const std::string ids = std::string{element_type(options.item_type)} + "[]";
    const std::string place =
        "SELECT value INTO hc_place FROM " + n.meta + " WHERE name = 'counted_in'";
    const std::string changes = "unnest(hc_items, hc_diffs) AS c (item, diff)";
    std::string text =
        "CREATE OR REPLACE FUNCTION " + function_name(options) +
        "() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $hotcount$\n" +
        std::string{kOurs} + "\nDECLARE\n  hc_place text;\n  hc_items " + ids +
        ";\n  hc_diffs bigint[];\nBEGIN\n"
        "  IF TG_LEVEL = 'ROW' THEN\n    " +
        gather(options, "hc_c.item",
               "(VALUES (OLD." + n.vote_item + ", -OLD." + n.value + "), (NEW." + n.vote_item +
                   ", NEW." + n.value + ")) AS hc_c (item, diff)") +
        " INTO hc_items, hc_diffs;\n  ELSIF TG_OP = 'DELETE' THEN\n    " +
        gather(options, "hc_c.item",
               "(SELECT " + n.vote_item + ", -" + n.value + " FROM hc_old) AS hc_c (item, diff)") +
        " INTO hc_items, hc_diffs;\n  ELSE\n    EXECUTE format(" +
        literal(
            gather(options, "hc_c.item",
                   "(SELECT " + n.vote_item + ", -" + n.value + " FROM %s) AS hc_c (item, diff)")) +
        ", CAST(TG_RELID AS regclass)) INTO hc_items, hc_diffs;\n  END IF;\n"
        "  IF hc_items IS NULL THEN RETURN NULL; END IF;\n"
        // A snapshot that is older than a move of the counts: 40001 instead of a count in the place
        // of before.
        "  IF current_setting('transaction_isolation') = 'read committed' THEN " +
        place + "; ELSE " + place + " FOR SHARE; END IF;\n";
    if (!n.count.empty()) {
        text += "  IF hc_place = 'item' THEN\n    PERFORM 1 FROM " + n.item + " WHERE " + n.id +
                " = ANY (hc_items) ORDER BY " + n.id + " FOR NO KEY UPDATE;\n    UPDATE " + n.item +
                " AS hc_i SET " + n.count + " = COALESCE(hc_i." + n.count + ", 0) + c.diff FROM " +
                changes + " WHERE hc_i." + n.id + " = c.item;\n    RETURN NULL;\n  END IF;\n";
    }
    return text + "  IF hc_place = 'cache' THEN\n    INSERT INTO " + n.recount +
           " AS hc_r (item, asked) SELECT c.item, 1 FROM " + changes +
           " ON CONFLICT (item) DO UPDATE SET asked = hc_r.asked + 1;\n    RETURN NULL;\n  END "
           "IF;\n"
           "  INSERT INTO " +
           n.journal + " (item, diff) SELECT c.item, c.diff FROM " + changes +
           ";\n  RETURN NULL;\nEND $hotcount$;\n"
           // Names without a schema are this session's, not those of the session that deletes.
           "DO $hotcount$ BEGIN EXECUTE format('ALTER FUNCTION %s() SET search_path = %s', " +
           literal(function_name(options)) +
           ", (SELECT string_agg(quote_ident(s), ', ') FROM unnest(current_schemas(false) || "
           "CAST('{pg_catalog,pg_temp}' AS name[])) AS s)); END $hotcount$;\n";
}

// LIKE ends at the word, which stands near the beginning of a batch.
constexpr std::string_view kOthers =
    "(current_query() LIKE '%hc_own%' AND pg_trigger_depth() = 0) IS NOT TRUE";

class PostgresOutsideTriggers final : public OutsideTriggers {
  public:
    Result<FoundTriggers> find(sql::Connection& connection,
                               const VotesOptions& options) const override {
        static const sql::Statement kFind{
            "SELECT CAST(c.relkind = 'p' AS int), CAST(has_table_privilege(c.oid, 'TRIGGER') AS "
            "int), (SELECT string_agg(CAST(t.tgname AS text), ', ') FROM pg_trigger AS t WHERE "
            "t.tgrelid = c.oid AND t.tgname = ANY (CAST(?2 AS name[])) AND NOT EXISTS (SELECT FROM "
            "pg_proc AS p WHERE p.oid = t.tgfoid AND strpos(p.prosrc, CAST(?4 AS text)) > 0)), "
            "CAST(EXISTS (SELECT FROM pg_trigger AS t WHERE t.tgrelid = c.oid AND t.tgname = "
            "(CAST(?2 AS name[]))[1] AND t.tgenabled <> 'D') AS int), CAST(EXISTS (SELECT FROM "
            "pg_trigger AS t WHERE t.tgrelid = c.oid AND t.tgname = (CAST(?2 AS name[]))[2] AND "
            "t.tgenabled <> 'D') AS int), (SELECT CAST(CAST(p.oid AS regprocedure) AS text) FROM "
            "pg_proc AS p WHERE p.oid = CAST(to_regproc(CAST(?3 AS text)) AS oid) AND "
            "strpos(p.prosrc, CAST(?4 AS text)) = 0) FROM pg_class AS c WHERE c.oid = "
            "to_regclass(CAST(?1 AS text))"};
        static const sql::Statement kCascades{
            "SELECT quote_ident(f.conname), CAST(f.confdeltype AS text), CAST(f.confupdtype AS "
            "text), CAST(a.attname = CAST(?2 AS name) AS int) FROM pg_constraint AS f JOIN "
            "pg_attribute AS a ON a.attrelid = f.conrelid AND a.attnum = f.conkey[1] WHERE "
            "f.contype = 'f' AND f.conrelid = to_regclass(CAST(?1 AS text)) ORDER BY f.conname"};
        FoundTriggers found;
        const auto votes = sql::TableName::of(options.vote_table);
        const std::string names = "{" + trigger_name(options, "", "deleted") + "," +
                                  trigger_name(options, "", "inserted") + "," +
                                  trigger_name(options, "", "updated") + "," +
                                  trigger_name(options, "", "emptied") + "}";
        const std::string table = votes.sql();
        const std::string function = function_name(options);
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            found.is_partitioned = row.integer(0) != 0;
            if (row.integer(1) == 0) {
                found.refused = "this role has no TRIGGER privilege on table " +
                                options.vote_table +
                                ": its owner grants it, or runs what migration() prints";
            }
            if (!row.is_null(2)) found.taken = "trigger " + std::string{row.text(2)};
            if (row.integer(3) != 0) found.form = OutsideWrites::deletes;
            if (row.integer(4) != 0) found.form = OutsideWrites::count;
            if (!row.is_null(5)) found.taken = "function " + std::string{row.text(5)};
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            kFind,
            {std::string_view{table}, std::string_view{names}, std::string_view{function}, kOurs},
            see));
        if (!found.taken.empty()) found.form = OutsideWrites::none;
        const sql::RowVisitor see_cascade = [&](const sql::Row& row) -> Result<void> {
            const auto rule = [](std::string_view code) -> std::string {
                if (code == "c") return "CASCADE";
                if (code == "n") return "SET NULL";
                return code == "d" ? "SET DEFAULT" : "";
            };
            const std::string deleted = rule(row.text(1));
            const std::string updated = row.integer(3) != 0 ? rule(row.text(2)) : "";
            std::string name{row.text(0)};
            if (!deleted.empty()) {
                found.cascades.push_back(name + " (ON DELETE " + deleted + ")");
            } else if (!updated.empty()) {
                found.cascades.push_back(name + " (ON UPDATE " + updated + ")");
            }
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            kCascades, {std::string_view{table}, std::string_view{options.vote_item}},
            see_cascade));
        return found;
    }

    std::string script(const VotesOptions& options, const VoteNames& n, OutsideWrites form,
                       const FoundTriggers& found) const override {
        std::string text;
        const std::array tables{std::pair{std::string{}, n.vote},
                                std::pair{std::string{"_anonymous"}, n.anonymous_vote}};
        if (form != OutsideWrites::none) text += function_text(options, n);
        for (const auto& [suffix, table] : tables) {
            for (const char* event : {"deleted", "emptied", "inserted", "updated"}) {
                text += "DROP TRIGGER IF EXISTS " + trigger_name(options, suffix, event) + " ON " +
                        table + ";\n";
            }
            if (form == OutsideWrites::none) continue;
            const bool by_rows = found.is_partitioned && suffix.empty();
            const auto add = [&](const char* event, const std::string& when,
                                 const std::string& rest) {
                text += "CREATE TRIGGER " + trigger_name(options, suffix, event) + " " + when +
                        " ON " + table + rest + " EXECUTE FUNCTION " + function_name(options) +
                        "();\n";
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
        if (form == OutsideWrites::deletes) {
            return "inserted and updated rows, COPY, and what is written with "
                   "session_replication_role = replica, with triggers disabled, or to a partition "
                   "that is attached, detached or truncated by itself";
        }
        return "what is written with session_replication_role = replica, with triggers disabled, "
               "or "
               "to a partition that is attached, detached or truncated by itself";
    }
};

}  // namespace

const OutsideTriggers& postgres_outside_triggers() {
    static const PostgresOutsideTriggers kTriggers;
    return kTriggers;
}

}  // namespace hotcount
