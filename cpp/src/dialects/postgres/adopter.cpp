// The application's own tables on PostgreSQL: reads their definition (catalog.sql) and alters them
// online (adoption.sql).
#include "votes/tables/adopter.hpp"

#include <algorithm>
#include <map>

#include "ballots.hpp"
#include "dialect.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"

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
    static const sql::Statement kTable{postgres_catalog()["table"]};
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

    static const sql::Statement kColumns{postgres_catalog()["columns"]};
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

    static const sql::Statement kKeys{postgres_catalog()["keys"]};
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

    static const sql::Statement kRefers{postgres_catalog()["references"]};
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
        static const sql::Statement kPath{postgres_catalog()["search_path"]};
        HOTCOUNT_TRY(connection.query(kPath, {}, see));
        // Unqualified names are resolved as in this session.
        const bool usual = path.empty() || path == "\"$user\", public";
        return "-- All sessions queue behind one that waits for the lock of a table, so each "
               "statement gives up\n-- after 2 s. After an error print the migration again: it has "
               "the rest. Run it in psql with\n-- ON_ERROR_STOP, outside of a transaction "
               "(CONCURRENTLY). Other roles that vote need SELECT, INSERT,\n-- UPDATE and DELETE "
               "on "
               "both tables and on the new ones.\n" +
               (usual ? std::string{} : "SET search_path = " + path + ";\n");
    }
    std::string impatiently(const std::string& text) const override {
        return script("impatiently", {{"statements", text}});
    }
    std::string cannot_add_key(const FoundTable& votes) const override {
        if (!votes.is_partitioned) return {};
        return "is partitioned, and PostgreSQL makes a unique key there only under a lock that "
               "keeps voters out: create it while no process votes (it has to have the columns of "
               "the "
               "partition key)";
    }
    std::string cannot_add_reference(const FoundTable&, const FoundColumn&, const FoundTable& votes,
                                     const FoundColumn&) const override {
        if (!votes.is_partitioned) return {};
        return "is partitioned, and PostgreSQL adds a foreign key there only under a lock that "
               "keeps voters out: add it while no process votes, or say foreign_key=False";
    }
    bool checks_references() const override { return true; }
    std::string add_columns(const std::string& table,
                            const std::vector<std::string>& columns) const override {
        std::string text;
        for (const std::string& column : columns) {
            text += (text.empty() ? "" : ", ") + ("ADD COLUMN " + column);
        }
        return "-- Of the catalogue only: no row is rewritten.\n" +
               script("add_columns", {{"table", table}, {"columns", text}});
    }
    std::string add_default(const std::string& table, const std::string& column,
                            const FoundColumn& found) const override {
        std::string value;
        if (found.kind == FoundColumn::Kind::time) value = "CURRENT_TIMESTAMP";
        if (found.kind == FoundColumn::Kind::uuid) value = "gen_random_uuid()";
        if (value.empty()) return {};
        return "-- A vote does not name this column.\n" +
               script("add_default", {{"table", table}, {"column", column}, {"default", value}});
    }
    std::string add_key(const sql::TableName& table, const std::string& key,
                        const std::string& first, const std::string& second,
                        bool unfinished) const override {
        return script("add_key",
                      index_names(table, key, "UNIQUE", first + ", " + second, unfinished));
    }
    std::string add_index(const sql::TableName& table, const std::string& index,
                          const std::string& column, bool unfinished) const override {
        return "-- For sums over the votes of an item.\n" +
               script("make_index", index_names(table, index, "", column, unfinished));
    }
    std::string add_reference(const VoteNames& n, const std::string& key,
                              bool unchecked) const override {
        sql::Names names = to_names(n);
        names.insert({{"key", key}, {"unchecked", sql::flag(unchecked)}});
        return "-- Votes are for items that exist. The rows that are there are checked while "
               "voters go on.\n" +
               script("add_reference", names);
    }
    std::string begin() const override { return "BEGIN ISOLATION LEVEL READ COMMITTED;\n"; }
    std::string fill_journal(const VoteNames& n, const std::string& openings,
                             const std::string& rows, const std::string& marks) const override {
        return postgres_statements(sql::postgres::kJournalSql, n, {})
            .with("fill", {{"openings", openings}, {"rows", rows}, {"marks", marks}});
    }

  private:
    static std::string script(std::string_view name, sql::Names names) {
        return sql::Statements{sql::postgres::kAdoptionSql, std::move(names)}[name];
    }
    static sql::Names index_names(const sql::TableName& table, const std::string& index,
                                  const std::string& unique, const std::string& columns,
                                  bool unfinished) {
        return {{"table", table.sql()},
                {"index", sql::TableName{table.schema, index}.sql()},
                {"index_name", sql::quote_identifier(index)},
                {"unique", unique},
                {"columns", columns},
                {"unfinished", sql::flag(unfinished)}};
    }
};

}  // namespace

const Adopter& postgres_adopter() {
    static const PostgresAdopter kAdopter;
    return kAdopter;
}

}  // namespace hotcount
