// The application's own tables on SQLite: how they are read, by pragmas, and how they are altered.
// An ALTER waits for the writer, as every write does, and rewrites no row.
#include "votes/tables/adopter.hpp"

#include <algorithm>
#include <cctype>
#include <hotcount/detail/sql/dialect.hpp>

#include "dialect.hpp"
#include "hotcount_embedded/dialects/sqlite/sql.hpp"
#include "sql/statements.hpp"

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
        static const sql::Statement kTable{sql::sqlite_catalog()["table"]};
        const sql::RowVisitor see_table = [&](const sql::Row& row) -> Result<void> {
            found.is_table = row.integer(0) != 0;
            found.is_view = !found.is_table;
            found.has_rules = row.integer(1) != 0;
            return {};
        };
        HOTCOUNT_TRY(connection.query(kTable, {name}, see_table));
        if (!found.is_table) return found;

        static const sql::Statement kColumns{sql::sqlite_catalog()["columns"]};
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

        static const sql::Statement kKeys{sql::sqlite_catalog()["keys"]};
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

        static const sql::Statement kRefers{sql::sqlite_catalog()["refers"]};
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
        return alter({})["begin_altering"];
    }
    std::string other_id(const std::string& column, IdType type) const override {
        return alter({{"column", column},
                      {"is_uuid", sql::flag(type == IdType::uuid)},
                      {"type", type == IdType::integer ? "'integer'" : "'text'"}})["other_id"];
    }
    std::string add_columns(const std::string& table,
                            const std::vector<std::string>& columns) const override {
        std::string text;
        for (const std::string& column : columns) {
            text += alter({{"table", table}, {"column", column}})["add_column"];
        }
        return text;
    }
    std::string add_key(const sql::TableName& table, const std::string& key,
                        const std::string& first, const std::string& second, bool) const override {
        return alter({{"table", table.sql()},
                      {"key", sql::quote_identifier(key)},
                      {"first", first},
                      {"second", second}})["add_key"];
    }
    std::string add_index(const sql::TableName& table, const std::string& index,
                          const std::string& column, bool) const override {
        return alter({{"table", table.sql()},
                      {"index", sql::quote_identifier(index)},
                      {"column", column}})["add_index"];
    }
    std::string begin() const override { return "BEGIN IMMEDIATE;\n"; }

  private:
    static sql::Statements alter(sql::Names names) {
        return {sql::sqlite::kAdoptionSql, std::move(names)};
    }
};

}  // namespace

const Adopter& sqlite_adopter() {
    static const SqliteAdopter kAdopter;
    return kAdopter;
}

}  // namespace hotcount
