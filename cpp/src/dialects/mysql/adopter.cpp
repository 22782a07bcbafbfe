// The application's own tables on MariaDB and MySQL: how they are read, from information_schema,
// and how they are altered online.
#include "votes/tables/adopter.hpp"

#include <hotcount/detail/sql/dialect.hpp>
#include <map>

#include "dialect.hpp"
#include "hotcount_embedded/dialects/mysql/sql.hpp"
#include "sql/statements.hpp"

namespace hotcount {
namespace {

FoundColumn::Kind kind_of(std::string_view type) {
    using Kind = FoundColumn::Kind;
    if (type.ends_with("int")) return Kind::integer;
    if (type == "varchar" || type == "char" || type == "varbinary") return Kind::text;
    if (type == "uuid") return Kind::uuid;
    if (type == "datetime" || type == "timestamp") return Kind::time;
    return Kind::other;
}

class MysqlAdopter final : public Adopter {
  public:
    Result<FoundTable> find(sql::Connection& connection, const sql::TableName& table,
                            const sql::TableName& items, const std::string& id) const override {
        FoundTable found;
        const std::string_view schema{table.schema};
        const std::string_view name{table.name};
        static const sql::Statement kTable{sql::mysql_catalog()["table"]};
        const sql::RowVisitor see_table = [&](const sql::Row& row) -> Result<void> {
            found.is_table = row.integer(0) != 0;
            found.is_view = !found.is_table;
            found.has_rules = row.integer(1) != 0;
            found.is_partitioned = row.integer(2) != 0;
            if (row.integer(5) != 0) {
                found.fixed =
                    "has a FULLTEXT index, and the server adds a column there only while writers "
                    "wait: add it with ALGORITHM=INPLACE, LOCK=SHARED when that may be";
            }
            if (row.integer(3) != 0) {
                found.unfit = "is system-versioned, and the server alters no such table online";
            } else if (found.is_table && row.text(4) != "InnoDB") {
                found.unfit = "is of the engine " + std::string{row.text(4)} +
                              ", and a vote and its count are one transaction of InnoDB: ALTER "
                              "TABLE ... ENGINE=InnoDB";
            }
            return {};
        };
        HOTCOUNT_TRY(connection.query(kTable, {schema, name}, see_table));
        if (!found.is_table) return found;

        static const sql::Statement kColumns{sql::mysql_catalog()["columns"]};
        const sql::RowVisitor see_column = [&](const sql::Row& row) -> Result<void> {
            FoundColumn column{std::string{row.text(0)}, std::string{row.text(1)},
                               kind_of(row.text(2))};
            const std::string_view extra = row.text(5);
            column.may_be_null = row.integer(3) != 0;
            column.generated = extra.find("GENERATED") != std::string_view::npos &&
                               extra.find("DEFAULT_GENERATED") == std::string_view::npos;
            column.fills_itself = column.may_be_null || row.integer(4) != 0 || column.generated ||
                                  extra.find("auto_increment") != std::string_view::npos;
            column.fills_apart = extra.find("auto_increment") != std::string_view::npos ||
                                 is_drawn(row.text(7), column.kind) ||
                                 (column.may_be_null && !column.generated && row.text(7) == "NULL");
            column.collation = row.text(6);
            found.columns.push_back(std::move(column));
            return {};
        };
        HOTCOUNT_TRY(connection.query(kColumns, {schema, name}, see_column));

        static const sql::Statement kKeys{sql::mysql_catalog()["keys"]};
        std::map<std::string, std::vector<std::string>> keys;
        std::vector<std::string> in_part;
        const sql::RowVisitor see_key = [&](const sql::Row& row) -> Result<void> {
            const std::string index{row.text(0)};
            if (row.is_null(1)) {
                in_part.push_back(index);
                return {};
            }
            if (row.integer(3) == 1) found.indexed.emplace_back(row.text(1));
            if (row.integer(2) != 0) return {};
            keys[index].emplace_back(row.text(1));
            if (row.integer(4) != 0) in_part.push_back(index);
            return {};
        };
        HOTCOUNT_TRY(connection.query(kKeys, {schema, name}, see_key));
        for (const std::string& index : in_part) {
            if (auto part = keys.extract(index)) found.part_keys.push_back(part.mapped());
        }
        for (auto& [index, key] : keys) found.keys.push_back(std::move(key));

        static const sql::Statement kRefers{sql::mysql_catalog()["refers"]};
        const sql::RowVisitor see_reference = [&](const sql::Row& row) -> Result<void> {
            found.refers.emplace_back(row.text(0));
            return {};
        };
        HOTCOUNT_TRY(connection.query(kRefers,
                                      {schema, name, std::string_view{items.schema},
                                       std::string_view{items.name}, std::string_view{id}},
                                      see_reference));
        return found;
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
        // Another length holds another form, as 32 digits without dashes.
        return column.kind == Kind::uuid ||
               (column.kind == Kind::text && column.type != "char(32)" &&
                column.type != "varchar(32)");
    }
    bool folds_names() const override { return true; }
    Result<std::string> begin_altering(sql::Connection&) const override {
        return alter({})["begin_altering"];
    }
    std::string cannot_add_reference(const FoundTable& items, const FoundColumn& id,
                                     const FoundTable& votes,
                                     const FoundColumn& item) const override {
        const std::string other = ", or say foreign_key=False";
        if (items.is_partitioned || votes.is_partitioned) {
            return std::string{items.is_partitioned ? "refers to a partitioned table"
                                                    : "is partitioned"} +
                   ", and the server has no foreign keys there: say foreign_key=False";
        }
        if (id.kind != FoundColumn::Kind::integer || number_type(id) == number_type(item)) {
            return {};
        }
        return "has ids of type " + item.type + " in " + item.name + ", and the items' are " +
               id.type + ": a foreign key needs the same type, so give them that" + other;
    }
    std::string add_columns(const std::string& table,
                            const std::vector<std::string>& columns) const override {
        std::string text;
        for (const std::string& column : columns) text += "ADD COLUMN " + column + ", ";
        return alter({{"table", table}, {"columns", text}})["add_columns"];
    }
    std::string add_default(const std::string& table, const std::string& column,
                            const FoundColumn& found) const override {
        if (found.kind != FoundColumn::Kind::time) return {};
        const auto digits = found.type.find('(');
        return alter(
            {{"table", table},
             {"column", column},
             {"digits",
              digits == std::string::npos ? "" : found.type.substr(digits)}})["default_to_now"];
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
    std::string add_reference(const VoteNames& n, const std::string& key, bool) const override {
        return alter(to_names(n)).with("add_foreign_key", {{"key", key}});
    }
    std::string begin() const override { return alter({})["begin"]; }
    std::string fill_journal(const VoteNames& n, const std::string& openings,
                             const std::string& rows, const std::string& marks) const override {
        return alter(to_names(n))
            .with("fill_journal", {{"openings", openings}, {"rows", rows}, {"marks", marks}});
    }
    // A trigger, on a line of its own, has semicolons, at which a client would cut it. It keeps the
    // sql_mode that it was made with.
    std::string for_client(const std::string& text) const override {
        const std::string script = sql::client_script(sql::mysql_grammar(), text);
        std::string made;
        for (std::size_t start = 0; start < script.size();) {
            const std::size_t end = std::min(script.find('\n', start), script.size() - 1) + 1;
            const std::string line = script.substr(start, end - start);
            start = end;
            made += line.starts_with("CREATE TRIGGER ")
                        ? "DELIMITER //\n" + line.substr(0, line.rfind(';')) + "//\nDELIMITER ;\n"
                        : line;
        }
        if (made.size() == script.size()) return script;
        return "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION';\n" + made;
    }

  private:
    // Without the width that it is shown in: bigint(20) unsigned.
    static std::string number_type(const FoundColumn& column) {
        const auto word = column.type.substr(0, column.type.find_first_of("( "));
        return word + (column.type.find("unsigned") != std::string::npos ? " unsigned" : "");
    }
    static sql::Statements alter(sql::Names names) {
        return {sql::mysql::kAdoptionSql, std::move(names)};
    }
};

}  // namespace

const Adopter& mysql_adopter() {
    static const MysqlAdopter kAdopter;
    return kAdopter;
}

}  // namespace hotcount
