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
    static const sql::Statement kTable{
        "SELECT CAST(relkind IN ('r', 'p') AS int), CAST(EXISTS (SELECT FROM pg_trigger WHERE "
        "tgrelid = c.oid AND NOT tgisinternal AND tgenabled <> 'D') OR EXISTS (SELECT FROM "
        "pg_rewrite WHERE ev_class = c.oid AND ev_type <> '1') AS int) FROM pg_class AS c WHERE "
        "oid = to_regclass(CAST(?1 AS text))"};
    const sql::RowVisitor see_table = [&](const sql::Row& row) -> Result<void> {
        found.is_table = row.integer(0) != 0;
        found.is_view = !found.is_table;
        found.has_triggers = row.integer(1) != 0;
        return {};
    };
    HOTCOUNT_TRY(connection.query(kTable, {std::string_view{table}}, see_table));
    if (!found.is_table) return found;

    static const sql::Statement kColumns{
        "SELECT CAST(a.attname AS text), format_type(a.atttypid, a.atttypmod), "
        "CAST(COALESCE(b.typname, t.typname) AS text), CAST(a.attnotnull OR t.typnotnull AS int), "
        "CAST(a.atthasdef OR a.attidentity <> '' OR t.typdefault IS NOT NULL AS int), "
        "CAST(a.attgenerated <> '' OR a.attidentity = 'a' AS int) FROM pg_attribute "
        "AS a JOIN pg_type AS t ON t.oid = a.atttypid LEFT JOIN pg_type AS b ON b.oid = "
        "t.typbasetype WHERE a.attrelid = to_regclass(CAST(?1 AS "
        "text)) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"};
    const sql::RowVisitor see_column = [&](const sql::Row& row) -> Result<void> {
        FoundColumn column{std::string{row.text(0)}, std::string{row.text(1)},
                           kind_of(row.text(2))};
        column.may_be_null = row.integer(3) == 0;
        column.generated = row.integer(5) != 0;
        column.fills_itself = column.may_be_null || row.integer(4) != 0;
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
        "SELECT CAST(a.attname AS text) FROM pg_constraint AS f JOIN pg_attribute AS a ON "
        "a.attrelid = f.conrelid AND a.attnum = f.conkey[1] JOIN pg_attribute AS o ON o.attrelid "
        "= f.confrelid AND o.attnum = f.confkey[1] WHERE f.contype = 'f' AND "
        "array_length(f.conkey, 1) = 1 AND f.convalidated AND f.conrelid = to_regclass(CAST(?1 "
        "AS text)) AND f.confrelid = to_regclass(CAST(?2 AS text)) AND o.attname = CAST(?3 AS "
        "text)"};
    const sql::RowVisitor see_reference = [&](const sql::Row& row) -> Result<void> {
        found.refers.emplace_back(row.text(0));
        return {};
    };
    HOTCOUNT_TRY(connection.query(
        kRefers, {std::string_view{table}, std::string_view{items}, std::string_view{id}},
        see_reference));
    return found;
}

// Names what keeps the rest of the script from waiting behind it.
constexpr const char* kPatience = "SET lock_timeout = '2s';\n";
constexpr const char* kWaits = "SET lock_timeout = 0;\n";

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
    std::string begin_altering() const override {
        return "-- Who waits for the lock of a table keeps everybody behind it waiting, so each "
               "statement "
               "gives up\n-- after 2 s. After an error print the migration again: it has the rest. "
               "Run it in psql with\n-- ON_ERROR_STOP, outside of a transaction (CONCURRENTLY).\n" +
               std::string{kPatience};
    }
    std::string add_columns(const std::string& table,
                            const std::vector<std::string>& columns) const override {
        std::string text;
        for (const std::string& column : columns) {
            text += (text.empty() ? "" : ", ") + ("ADD COLUMN " + column);
        }
        return "-- Of the catalogue only: no row is rewritten.\nALTER TABLE " + table + " " + text +
               ";\n";
    }
    std::string add_default(const std::string& table, const std::string& column,
                            const FoundColumn& found) const override {
        std::string value;
        if (found.kind == FoundColumn::Kind::time) value = "CURRENT_TIMESTAMP";
        if (found.kind == FoundColumn::Kind::uuid) value = "gen_random_uuid()";
        if (value.empty()) return {};
        return "-- A vote does not name this column.\nALTER TABLE " + table + " ALTER COLUMN " +
               column + " SET DEFAULT " + value + ";\n";
    }
    std::string add_key(const sql::TableName& table, const std::string& key,
                        const std::string& first, const std::string& second,
                        bool unfinished) const override {
        const std::string name = sql::quote_identifier(key);
        return make_index(table, key, "UNIQUE ", first + ", " + second, unfinished) +
               "ALTER TABLE " + table.sql() + " ADD CONSTRAINT " + name + " UNIQUE USING INDEX " +
               name + ";\n";
    }
    std::string add_index(const sql::TableName& table, const std::string& index,
                          const std::string& column, bool unfinished) const override {
        return "-- For sums over the votes of an item.\n" +
               make_index(table, index, "", column, unfinished);
    }
    std::string add_reference(const VoteNames& n, const std::string& key) const override {
        return "-- Votes are for items that exist. The rows that are there are checked while "
               "voters go "
               "on.\nALTER TABLE " +
               n.vote + " ADD CONSTRAINT " + key + " FOREIGN KEY (" + n.vote_item +
               ") REFERENCES " + n.item + " (" + n.id + ") NOT VALID;\nALTER TABLE " + n.vote +
               " VALIDATE CONSTRAINT " + key + ";\n";
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
        return kWaits +
               (unfinished ? "DROP INDEX CONCURRENTLY " + there.sql() + ";\n" : std::string{}) +
               "CREATE " + unique + "INDEX CONCURRENTLY " + name + " ON " + table.sql() + " (" +
               columns + ");\n" + kPatience;
    }
};

}  // namespace

const Adopter& postgres_adopter() {
    static const PostgresAdopter kAdopter;
    return kAdopter;
}

}  // namespace hotcount
