// The application's own tables on SQLite: what they are, by its pragmas. Altering one waits for the
// writer, as every write does, and rewrites no row.
#include "votes/tables/adopter.hpp"

#include <algorithm>
#include <cctype>
#include <hotcount/detail/sql/dialect.hpp>

#include "dialect.hpp"

namespace hotcount {
namespace {

// By the rules of SQLite's column affinity.
FoundColumn::Kind kind_of(std::string type) {
    using Kind = FoundColumn::Kind;
    std::transform(type.begin(), type.end(), type.begin(),
                   [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
    const auto says = [&](std::string_view word) { return type.find(word) != std::string::npos; };
    if (says("INT")) return Kind::integer;
    if (says("CHAR") || says("CLOB") || says("TEXT")) return Kind::text;
    if (says("DATE") || says("TIME")) return Kind::time;
    if (says("UUID")) return Kind::uuid;
    return Kind::other;
}

class SqliteAdopter final : public Adopter {
  public:
    Result<FoundTable> find(sql::Connection& connection, const sql::TableName& table,
                            const sql::TableName& items, const std::string& id) const override {
        FoundTable found;
        const std::string_view name{table.name};
        static const sql::Statement kTable{
            "SELECT type = 'table', sql LIKE '%CHECK%' OR EXISTS (SELECT 1 FROM sqlite_master "
            "WHERE "
            "type = 'trigger' AND tbl_name = ?1 COLLATE NOCASE AND instr(sql, '/* hotcount: ') = "
            "0) "
            "FROM sqlite_master WHERE type IN "
            "('table', 'view') AND "
            "name = ?1 COLLATE NOCASE"};
        const sql::RowVisitor see_table = [&](const sql::Row& row) -> Result<void> {
            found.is_table = row.integer(0) != 0;
            found.is_view = !found.is_table;
            found.has_rules = row.integer(1) != 0;
            return {};
        };
        HOTCOUNT_TRY(connection.query(kTable, {name}, see_table));
        if (!found.is_table) return found;

        static const sql::Statement kColumns{
            "SELECT name, type, \"notnull\", dflt_value IS NOT NULL, pk, hidden, "
            "COALESCE(dflt_value, '') FROM pragma_table_xinfo(?1)"};
        std::vector<std::string> primary;
        const sql::RowVisitor see_column = [&](const sql::Row& row) -> Result<void> {
            FoundColumn column{std::string{row.text(0)}, std::string{row.text(1)},
                               kind_of(std::string{row.text(1)})};
            column.may_be_null = row.integer(2) == 0;
            column.generated = row.integer(5) > 1;
            column.fills_itself = column.may_be_null || row.integer(3) != 0 || column.generated;
            column.fills_apart = is_drawn(row.text(6), column.kind) ||
                                 (column.may_be_null && !column.generated && row.integer(3) == 0);
            if (row.integer(4) > 0) primary.push_back(column.name);
            found.columns.push_back(std::move(column));
            return {};
        };
        HOTCOUNT_TRY(connection.query(kColumns, {name}, see_column));
        if (!primary.empty()) found.keys.push_back(primary);
        for (FoundColumn& column : found.columns) {
            // An INTEGER PRIMARY KEY is the row's number, which SQLite chooses.
            if (primary.size() == 1 && primary.front() == column.name &&
                column.kind == FoundColumn::Kind::integer) {
                column.fills_itself = true;
                column.fills_apart = true;
            }
        }

        static const sql::Statement kKeys{
            "SELECT l.name, i.name, l.\"unique\" AND NOT l.partial, i.seqno, l.partial FROM "
            "pragma_index_list(?1) AS l, pragma_index_info(l.name) AS i ORDER BY l.seq, i.seqno"};
        std::string last;
        const sql::RowVisitor see_key = [&](const sql::Row& row) -> Result<void> {
            const std::string column{row.is_null(1) ? "" : row.text(1)};
            if (row.integer(3) == 0 && row.integer(4) == 0) found.indexed.push_back(column);
            if (row.integer(2) == 0) return {};
            if (row.text(0) != last) found.keys.emplace_back();
            last = row.text(0);
            found.keys.back().push_back(column);
            return {};
        };
        HOTCOUNT_TRY(connection.query(kKeys, {name}, see_key));
        if (!primary.empty()) found.indexed.push_back(primary.front());

        static const sql::Statement kRefers{
            "SELECT \"from\" FROM pragma_foreign_key_list(?1) WHERE \"table\" = ?2 COLLATE NOCASE "
            "AND COALESCE(\"to\", ?3) = ?3 COLLATE NOCASE"};
        const sql::RowVisitor see_reference = [&](const sql::Row& row) -> Result<void> {
            found.refers.emplace_back(row.text(0));
            return {};
        };
        HOTCOUNT_TRY(connection.query(
            kRefers, {name, std::string_view{items.name}, std::string_view{id}}, see_reference));
        return found;
    }
    bool holds(const FoundColumn& column, IdType type) const override {
        using Kind = FoundColumn::Kind;
        if (type == IdType::integer) return column.kind == Kind::integer;
        if (type == IdType::text) return column.kind == Kind::text;
        // Another length holds another form, as 32 digits without dashes.
        return column.kind == Kind::uuid ||
               (column.kind == Kind::text && column.type.find("(32)") == std::string::npos);
    }
    bool folds_names() const override { return true; }
    Result<std::string> begin_altering(sql::Connection&) const override {
        return std::string{
            "-- Run it with sqlite3 -bail. After an error print the migration again: "
            "it has the rest.\n"};
    }
    // A column takes a value of any type.
    std::string other_id(const std::string& column, IdType type) const override {
        switch (type) {
            case IdType::integer:
                return "typeof(" + column + ") NOT IN ('integer', 'null')";
            case IdType::text:
                return "typeof(" + column + ") NOT IN ('text', 'null')";
            case IdType::uuid:
                break;
        }
        return "typeof(" + column + ") NOT IN ('text', 'null') OR length(" + column +
               ") <> 36 OR " + column + " <> lower(" + column + ")";
    }
    std::string add_columns(const std::string& table,
                            const std::vector<std::string>& columns) const override {
        std::string text;
        for (const std::string& column : columns) {
            text += "ALTER TABLE " + table + " ADD COLUMN " + column + ";\n";
        }
        return text;
    }
    std::string add_key(const sql::TableName& table, const std::string& key,
                        const std::string& first, const std::string& second, bool) const override {
        return "CREATE UNIQUE INDEX " + sql::quote_identifier(key) + " ON " + table.sql() + " (" +
               first + ", " + second + ");\n";
    }
    std::string add_index(const sql::TableName& table, const std::string& index,
                          const std::string& column, bool) const override {
        return "CREATE INDEX " + sql::quote_identifier(index) + " ON " + table.sql() + " (" +
               column + ");\n";
    }
    std::string begin() const override { return "BEGIN IMMEDIATE;\n"; }
};

}  // namespace

const Adopter& sqlite_adopter() {
    static const SqliteAdopter kAdopter;
    return kAdopter;
}

}  // namespace hotcount
