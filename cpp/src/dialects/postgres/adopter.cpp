// The application's own tables on PostgreSQL: what they are, by the catalogue, and how they are altered
// online.
//
// ALTER TABLE takes ACCESS EXCLUSIVE for as long as it takes to change the catalogue: a column with a
// constant default rewrites nothing, an index is built CONCURRENTLY and then becomes the constraint,
// and a foreign key is added NOT VALID and then checked under a lock that lets voters through.
#include "votes/tables/adopter.hpp"

#include <algorithm>
#include <map>

#include "ballots.hpp"
#include "dialect.hpp"

namespace hotcount {
namespace {

FoundColumn::Kind kind_of(std::string_view type) {
    using Kind = FoundColumn::Kind;
    if (type == "int2" || type == "int4" || type == "int8") return Kind::integer;
    if (type == "text" || type == "varchar") return Kind::text;
    if (type == "uuid") return Kind::uuid;
    if (type == "timestamp" || type == "timestamptz" || type == "date") return Kind::time;
    return Kind::other;
}

Result<FoundTable> find_table(sql::Connection& connection, const std::string& table,
                              const std::string& items, const std::string& id) {
    FoundTable found;
    // A policy for everything and everybody hides nothing, unless there is one that restricts.
    // Whatever reads an expression locks its table, so it is read only where there is a policy.
    static const sql::Statement kTable{
        "SELECT CAST(relkind IN ('r', 'p') AS int), CAST(EXISTS (SELECT FROM pg_trigger WHERE "
        "tgrelid = c.oid AND NOT tgisinternal AND tgenabled <> 'D' AND tgname NOT LIKE "
        "'hotcount\\_%') OR EXISTS (SELECT FROM "
        "pg_rewrite WHERE ev_class = c.oid AND ev_type <> '1') OR EXISTS (SELECT FROM "
        "pg_constraint WHERE conrelid = c.oid AND contype = 'c') AS int), CAST(relkind = 'p' AS "
        "int), CAST(CASE WHEN row_security_active(c.oid) THEN EXISTS (SELECT FROM pg_policy WHERE "
        "polrelid = c.oid AND NOT polpermissive) OR NOT EXISTS (SELECT FROM pg_policy WHERE "
        "polrelid = c.oid AND polcmd = '*' AND pg_get_expr(polqual, polrelid) = 'true' AND "
        "COALESCE(pg_get_expr(polwithcheck, polrelid), 'true') = 'true' AND EXISTS (SELECT FROM "
        "unnest(polroles) AS of(role) WHERE CASE WHEN role = 0 THEN true ELSE pg_has_role(role, "
        "'USAGE') END)) ELSE false END AS int) FROM pg_class AS c WHERE oid = "
        "to_regclass(CAST(?1 AS text))"};
    const sql::RowVisitor see_table = [&](const sql::Row& row) -> Result<void> {
        found.is_table = row.integer(0) != 0;
        found.is_view = !found.is_table;
        found.has_rules = row.integer(1) != 0;
        found.is_partitioned = row.integer(2) != 0;
        if (row.integer(3) != 0) {
            found.unfit =
                "has row-level security, which hides rows from this role, and counts would lack "
                "them: hotcount needs a role that sees all of them, the table's owner (without "
                "FORCE ROW LEVEL SECURITY) or one with BYPASSRLS";
        }
        return {};
    };
    HOTCOUNT_TRY(connection.query(kTable, {std::string_view{table}}, see_table));
    if (!found.is_table) return found;

    // funcformat 0: the default calls a function, and is no literal with a type.
    static const sql::Statement kColumns{
        "SELECT CAST(a.attname AS text), format_type(a.atttypid, a.atttypmod), "
        "CAST(COALESCE(b.typname, t.typname) AS text), CAST(a.attnotnull OR t.typnotnull AS int), "
        "CAST(a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL AS int), "
        "CAST(a.attgenerated <> '' OR a.attidentity = 'a' AS int), CAST(a.attidentity <> '' AS "
        "int), CAST(COALESCE(CAST(d.adbin AS text) LIKE '%:funcformat 0%', false) AS int) FROM "
        "pg_attribute "
        "AS a JOIN pg_type AS t ON t.oid = a.atttypid LEFT JOIN pg_type AS b ON b.oid = "
        "t.typbasetype LEFT JOIN pg_attrdef AS d ON d.adrelid = a.attrelid AND d.adnum = a.attnum "
        "WHERE a.attrelid = to_regclass(CAST(?1 AS "
        "text)) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"};
    const sql::RowVisitor see_column = [&](const sql::Row& row) -> Result<void> {
        FoundColumn column{std::string{row.text(0)}, std::string{row.text(1)},
                           kind_of(row.text(2))};
        column.may_be_null = row.integer(3) == 0;
        column.generated = row.integer(5) != 0;
        column.fills_itself = column.may_be_null || row.integer(4) != 0;
        column.fills_apart = row.integer(6) != 0 ||
                             (row.integer(7) != 0 && column.kind != FoundColumn::Kind::time) ||
                             (column.may_be_null && row.integer(4) == 0);
        found.columns.push_back(std::move(column));
        return {};
    };
    HOTCOUNT_TRY(connection.query(kColumns, {std::string_view{table}}, see_column));

    static const sql::Statement kKeys{
        "SELECT CAST(x.relname AS text), CAST(a.attname AS text), CAST(i.indisunique AND "
        "i.indimmediate AND i.indpred IS NULL AND NOT EXISTS (SELECT FROM "
        "unnest(CAST(i.indkey AS int2[])) AS e(n) WHERE e.n = 0) AS int), CAST(i.indisvalid AS "
        "int), CAST(i.indpred IS NULL AS int), k.place FROM pg_index AS i JOIN pg_class AS x ON "
        "x.oid = i.indexrelid CROSS JOIN LATERAL unnest(CAST(i.indkey AS int2[])) WITH ORDINALITY "
        "AS k(number, place) LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum "
        "= k.number AND k.number <> 0 WHERE i.indrelid = to_regclass(CAST(?1 AS text)) AND "
        "k.place <= i.indnkeyatts ORDER BY 1, k.place"};
    std::map<std::string, std::vector<std::string>> keys;
    const sql::RowVisitor see_key = [&](const sql::Row& row) -> Result<void> {
        const std::string index{row.text(0)};
        if (row.integer(3) == 0) {
            if (row.integer(5) == 1) found.unfinished.push_back(index);
            return {};
        }
        if (row.is_null(1)) return {};
        if (row.integer(5) == 1 && row.integer(4) != 0) found.indexed.emplace_back(row.text(1));
        if (row.integer(2) != 0) keys[index].emplace_back(row.text(1));
        return {};
    };
    HOTCOUNT_TRY(connection.query(kKeys, {std::string_view{table}}, see_key));
    for (auto& [index, key] : keys) found.keys.push_back(std::move(key));

    static const sql::Statement kRefers{
        "SELECT CAST(a.attname AS text), CAST(f.conname AS text), CAST(f.convalidated AS int) FROM "
        "pg_constraint AS f JOIN pg_attribute AS a ON "
        "a.attrelid = f.conrelid AND a.attnum = f.conkey[1] JOIN pg_attribute AS o ON o.attrelid "
        "= f.confrelid AND o.attnum = f.confkey[1] WHERE f.contype = 'f' AND "
        "array_length(f.conkey, 1) = 1 AND f.conrelid = to_regclass(CAST(?1 "
        "AS text)) AND f.confrelid = to_regclass(CAST(?2 AS text)) AND o.attname = CAST(?3 AS "
        "text)"};
    const sql::RowVisitor see_reference = [&](const sql::Row& row) -> Result<void> {
        if (row.integer(2) != 0) {
            found.refers.emplace_back(row.text(0));
        } else {
            found.unchecked.emplace_back(row.text(0), row.text(1));
        }
        return {};
    };
    HOTCOUNT_TRY(connection.query(
        kRefers, {std::string_view{table}, std::string_view{items}, std::string_view{id}},
        see_reference));
    return found;
}

class PostgresAdopter final : public Adopter {
  public:
    Result<FoundTable> find(sql::Connection& connection, const sql::TableName& table,
                            const sql::TableName& items, const std::string& id) const override {
        return find_table(connection, table.sql(), items.sql(), id);
    }
    bool holds(const FoundColumn& column, IdType type) const override {
        using Kind = FoundColumn::Kind;
        switch (type) {
            case IdType::integer:
                return column.kind == Kind::integer;
            case IdType::text:
                return column.kind == Kind::text;
            case IdType::uuid:
                break;
        }
        return column.kind == Kind::uuid;
    }
    Result<std::string> begin_altering(sql::Connection& connection) const override {
        std::string path;
        const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
            path = row.text(0);
            return {};
        };
        static const sql::Statement kPath{"SELECT current_setting('search_path')"};
        HOTCOUNT_TRY(connection.query(kPath, {}, see));
        // Names without a schema are those of this session.
        const bool usual = path.empty() || path == "\"$user\", public";
        return "-- Who waits for the lock of a table keeps everybody behind it waiting, so each "
               "statement gives up\n-- after 2 s. After an error print the migration again: it has "
               "the rest. Run it in psql with\n-- ON_ERROR_STOP, outside of a transaction "
               "(CONCURRENTLY). Other roles that vote need SELECT, INSERT,\n-- UPDATE and DELETE "
               "on "
               "both tables and on the new ones.\n" +
               (usual ? std::string{} : "SET search_path = " + path + ";\n");
    }
    // Of the transaction, not of the session: a pooler would hand a session's on to others.
    std::string impatiently(const std::string& text) const override {
        return "BEGIN;\nSET LOCAL lock_timeout = '2s';\n" + text + "COMMIT;\n";
    }
    std::string cannot_add_key(const FoundTable& votes) const override {
        if (!votes.is_partitioned) return {};
        return "is partitioned, and PostgreSQL makes a unique key there only under a lock that "
               "keeps voters out: make it when nobody votes (it has to have the columns of the "
               "partition key)";
    }
    std::string cannot_add_reference(const FoundTable&, const FoundColumn&, const FoundTable& votes,
                                     const FoundColumn&) const override {
        if (!votes.is_partitioned) return {};
        return "is partitioned, and PostgreSQL adds a foreign key there only under a lock that "
               "keeps voters out: add it when nobody votes, or say foreign_key=False";
    }
    bool checks_references() const override { return true; }
    std::string add_columns(const std::string& table,
                            const std::vector<std::string>& columns) const override {
        std::string text;
        for (const std::string& column : columns) {
            text += (text.empty() ? "" : ", ") + ("ADD COLUMN " + column);
        }
        return "-- Of the catalogue only: no row is rewritten.\n" +
               impatiently("ALTER TABLE " + table + " " + text + ";\n");
    }
    std::string add_default(const std::string& table, const std::string& column,
                            const FoundColumn& found) const override {
        std::string value;
        if (found.kind == FoundColumn::Kind::time) value = "CURRENT_TIMESTAMP";
        if (found.kind == FoundColumn::Kind::uuid) value = "gen_random_uuid()";
        if (value.empty()) return {};
        return "-- A vote does not name this column.\n" +
               impatiently("ALTER TABLE " + table + " ALTER COLUMN " + column + " SET DEFAULT " +
                           value + ";\n");
    }
    std::string add_key(const sql::TableName& table, const std::string& key,
                        const std::string& first, const std::string& second,
                        bool unfinished) const override {
        const std::string name = sql::quote_identifier(key);
        return make_index(table, key, "UNIQUE ", first + ", " + second, unfinished) +
               impatiently("ALTER TABLE " + table.sql() + " ADD CONSTRAINT " + name +
                           " UNIQUE USING INDEX " + name + ";\n");
    }
    std::string add_index(const sql::TableName& table, const std::string& index,
                          const std::string& column, bool unfinished) const override {
        return "-- For sums over the votes of an item.\n" +
               make_index(table, index, "", column, unfinished);
    }
    std::string add_reference(const VoteNames& n, const std::string& key,
                              bool unchecked) const override {
        return "-- Votes are for items that exist. The rows that are there are checked while "
               "voters go on.\n" +
               (unchecked ? std::string{}
                          : impatiently("ALTER TABLE " + n.vote + " ADD CONSTRAINT " + key +
                                        " FOREIGN KEY (" + n.vote_item + ") REFERENCES " + n.item +
                                        " (" + n.id + ") NOT VALID;\n")) +
               impatiently("ALTER TABLE " + n.vote + " VALIDATE CONSTRAINT " + key + ";\n");
    }
    std::string begin() const override { return "BEGIN ISOLATION LEVEL READ COMMITTED;\n"; }
    // All in one statement, and so of one snapshot.
    std::string fill_journal(const VoteNames& n, const std::string& openings,
                             const std::string& rows, const std::string& marks) const override {
        return begin() + "SELECT pg_advisory_xact_lock(" + fold_lock_key(n) + ");\nWITH " +
               (openings.empty() ? "" : "hc_kept AS (" + openings + "), ") + "hc_noted AS (" +
               rows + ") " + marks + ";\nCOMMIT;\n";
    }

  private:
    // Waits for transactions that are older, and keeps nobody waiting.
    static std::string make_index(const sql::TableName& table, const std::string& index,
                                  const std::string& unique, const std::string& columns,
                                  bool unfinished) {
        const std::string name = sql::quote_identifier(index);
        const sql::TableName there{table.schema, index};
        return (unfinished ? "DROP INDEX CONCURRENTLY " + there.sql() + ";\n" : std::string{}) +
               "CREATE " + unique + "INDEX CONCURRENTLY " + name + " ON " + table.sql() + " (" +
               columns + ");\n";
    }
};

}  // namespace

const Adopter& postgres_adopter() {
    static const PostgresAdopter kAdopter;
    return kAdopter;
}

}  // namespace hotcount
