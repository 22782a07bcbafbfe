#include "adoption.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <tuple>

#include "hotcount_embedded/votes/sql.hpp"
#include "vote_dialect.hpp"

namespace hotcount {
namespace {

std::string column_of(const std::string& table, const std::string& column) {
    return "column " + column + " of table " + table;
}

std::string_view python_name(IdType type) {
    switch (type) {
        case IdType::integer:
            return "int";
        case IdType::text:
            return "str";
        case IdType::uuid:
            break;
    }
    return "uuid.UUID";
}

}  // namespace

Error refuse_table(const std::string& what) {
    return make_error(ErrorCode::config, what + ". Nothing was changed");
}

Adoption::Adoption(const VotesOptions& options, const VoteDialect& dialect)
    : options_(options),
      names_(options, dialect.grammar()),
      dialect_(dialect),
      adopter_(dialect.adopter()),
      item_table_(sql::TableName::of(options.item_table)),
      vote_table_(sql::TableName::of(options.vote_table)) {}

sql::Statements Adoption::statements() const {
    return vote_statements(vote_sql::kAdoptionSql, names_, dialect_.grammar());
}

Result<void> Adoption::read(sql::Connection& connection) {
    HOTCOUNT_TRY_ASSIGN(items_,
                        adopter_.find(connection, item_table_, item_table_, options_.item_id));
    HOTCOUNT_TRY_ASSIGN(votes_,
                        adopter_.find(connection, vote_table_, item_table_, options_.item_id));
    if (!adopter_.folds_names()) return {};
    for (const std::string* name : {&options_.item_id, &options_.item_count}) items_.spell(*name);
    for (const std::string* name : {&options_.vote_item, &options_.vote_user, &options_.vote_value,
                                    &options_.vote_previous, &options_.vote_version}) {
        votes_.spell(*name);
    }
    return {};
}

Result<void> Adoption::look(sql::Connection& connection) {
    HOTCOUNT_TRY(read(connection));
    HOTCOUNT_TRY(check_fit());
    HOTCOUNT_TRY(check_items());
    HOTCOUNT_TRY(check_votes());
    HOTCOUNT_TRY(check_columns());
    HOTCOUNT_TRY(check_keys());
    HOTCOUNT_TRY(check_references());
    HOTCOUNT_TRY(check_ours(connection));
    return check_rows(connection);
}

Result<void> Adoption::check_fit() const {
    for (const auto& [table, called] :
         {std::pair{&items_, &options_.item_table}, std::pair{&votes_, &options_.vote_table}}) {
        if (!table->unfit.empty()) return refuse_table("table " + *called + " " + table->unfit);
    }
    return {};
}

Result<void> Adoption::check_ids(const FoundColumn* column, const std::string& table,
                                 const std::string& name, IdType type, const char* option) const {
    if (column == nullptr) return {};
    // Items are the application's to make, unless votes do.
    const bool written =
        column != items_.find(options_.item_id) || options_.missing_item == MissingItem::create;
    if (column->generated && written) {
        return refuse_table(column_of(table, name) + " is generated, and a vote has to write it");
    }
    if (adopter_.holds(*column, type)) return {};
    return refuse_table(column_of(table, name) + " is of type " + column->type + ", and " + option +
                        " is " + std::string{python_name(type)} +
                        ": say what the column has, or give it that type");
}

Result<void> Adoption::check_items() const {
    const std::string& table = options_.item_table;
    if (items_.is_view) {
        return refuse_table(table +
                            " is a view, and rows of a view cannot be locked: item_table names "
                            "the table behind it");
    }
    if (!items_.is_table) return {};
    const FoundColumn* const id = items_.find(options_.item_id);
    if (id == nullptr) {
        return refuse_table("table " + table + " has no column " + options_.item_id +
                            ": item_id= names its key");
    }
    HOTCOUNT_TRY(check_ids(id, table, options_.item_id, options_.item_type, "item_type"));
    if (!items_.has_key({options_.item_id})) {
        return refuse_table(
            column_of(table, options_.item_id) +
            " is no key, so two items may have one id: make it the primary key, or give "
            "it a unique index");
    }
    const FoundColumn* const count = items_.find(options_.item_count);
    if (count != nullptr && (count->kind != FoundColumn::Kind::integer || count->generated)) {
        return refuse_table(column_of(table, options_.item_count) + " is " +
                            (count->generated ? "generated" : "of type " + count->type) +
                            ", and counts are integers: item_count= names another column, or None");
    }
    return {};
}

bool Adoption::has_column_of_ours(const std::string& name) const {
    return name == options_.vote_item || name == options_.vote_user ||
           name == options_.vote_value || name == options_.vote_previous ||
           name == options_.vote_version;
}

Result<void> Adoption::check_votes() const {
    const std::string& table = options_.vote_table;
    if (votes_.is_view) {
        return refuse_table(table +
                            " is a view, and votes are stored in a table: vote_table names it");
    }
    if (!votes_.is_table) return {};
    const FoundColumn* const item = votes_.find(options_.vote_item);
    if (item == nullptr) {
        return refuse_table("table " + table + " has no column " + options_.vote_item +
                            ": vote_item= names the one that holds the item");
    }
    HOTCOUNT_TRY(check_ids(item, table, options_.vote_item, options_.item_type, "item_type"));
    HOTCOUNT_TRY(check_ids(votes_.find(options_.vote_user), table, options_.vote_user,
                           options_.user_type, "user_type"));
    const FoundColumn* const id = items_.find(options_.item_id);
    if (id != nullptr && !id->collation.empty() && !item->collation.empty() &&
        id->collation != item->collation) {
        return refuse_table("columns " + options_.item_table + "." + options_.item_id + " and " +
                            table + "." + options_.vote_item + " have the collations " +
                            id->collation + " and " + item->collation +
                            ", by which they cannot be compared: give them the same");
    }
    for (const auto& [option, name, nullable] :
         {std::tuple{"vote_value", &options_.vote_value, false},
          std::tuple{"vote_previous", &options_.vote_previous, false},
          std::tuple{"vote_version", &options_.vote_version, true}}) {
        const FoundColumn* const column = votes_.find(*name);
        if (column == nullptr) continue;
        const std::string other =
            ": " + std::string{option} + "= names a column for hotcount, which may be a new one";
        if (column->kind != FoundColumn::Kind::integer || column->generated) {
            return refuse_table(column_of(table, *name) + " is " +
                                (column->generated ? "generated" : "of type " + column->type) +
                                ", and a vote writes an integer there" + other);
        }
        if (nullable && !column->may_be_null) {
            return refuse_table(column_of(table, *name) +
                                " is NOT NULL, and a vote without a version writes NULL there" +
                                other);
        }
        if (!nullable && column->may_be_null) {
            return refuse_table(
                column_of(table, *name) +
                " may be NULL, and every vote has a number there: set those that are "
                "NULL and make it NOT NULL" +
                other);
        }
    }
    for (const FoundColumn& column : votes_.columns) {
        if (column.fills_itself || has_column_of_ours(column.name)) continue;
        if (!adopter_.add_default(names_.vote, sql::quote_identifier(column.name), column)
                 .empty()) {
            continue;
        }
        return refuse_table(column_of(table, column.name) +
                            " is NOT NULL and has no default in the database, and a vote does not "
                            "fill it: give it a "
                            "default, or let it be NULL");
    }
    return {};
}

Result<void> Adoption::check_columns() const {
    if (items_.is_table && !items_.fixed.empty() && !options_.item_count.empty() &&
        !items_have_counts()) {
        return refuse_table("table " + options_.item_table + " lacks column " +
                            options_.item_count + ". It " + items_.fixed +
                            ", or say item_count=None");
    }
    if (!votes_.is_table || votes_.fixed.empty()) return {};
    for (const std::string* column : {&options_.vote_user, &options_.vote_value,
                                      &options_.vote_previous, &options_.vote_version}) {
        if (votes_.find(*column) != nullptr) continue;
        return refuse_table("table " + options_.vote_table + " lacks column " + *column + ". It " +
                            votes_.fixed);
    }
    return {};
}

// By a key that does not tell item and user, or that a vote leaves as it is in other rows, the second
// vote is refused, or (MariaDB) taken for the first.
Result<void> Adoption::check_keys() const {
    const auto sets_apart = [&](const std::string& name) {
        const FoundColumn* const column = votes_.find(name);
        if (column == nullptr || has_column_of_ours(name)) return false;
        // The expression that fills the column is not known, and may be made of item and user.
        if (column->fills_apart || column->generated) return true;
        return column->kind == FoundColumn::Kind::uuid && !column->fills_itself;
    };
    const auto check = [&](const std::vector<std::string>& key, bool whole) -> Result<void> {
        const auto has = [&](const std::string& name) {
            return std::find(key.begin(), key.end(), name) != key.end();
        };
        if (whole && has(options_.vote_item) && has(options_.vote_user)) return {};
        if (std::any_of(key.begin(), key.end(), sets_apart)) return {};
        std::string columns;
        for (const std::string& name : key) columns += (columns.empty() ? "" : ", ") + name;
        return refuse_table(
            "table " + options_.vote_table + " has a unique key over " + columns +
            ", by which the vote for one item would replace that for another: a vote is "
            "told by " +
            options_.vote_item + " and " + options_.vote_user + " together; drop it");
    };
    for (const auto& key : votes_.keys) HOTCOUNT_TRY(check(key, true));
    for (const auto& key : votes_.part_keys) HOTCOUNT_TRY(check(key, false));
    if (!lacks_key()) return {};
    const std::string cannot = adopter_.cannot_add_key(votes_);
    if (cannot.empty()) return {};
    return refuse_table("table " + options_.vote_table + " has no unique key over " +
                        options_.vote_item + " and " + options_.vote_user + ". It " + cannot);
}

bool Adoption::lacks_reference() const {
    return options_.foreign_key && votes_.is_table && items_.is_table &&
           std::find(votes_.refers.begin(), votes_.refers.end(), options_.vote_item) ==
               votes_.refers.end();
}

std::optional<std::string> Adoption::unchecked_reference() const {
    for (const auto& [column, key] : votes_.unchecked) {
        if (column == options_.vote_item) return key;
    }
    return std::nullopt;
}

Result<void> Adoption::check_references() const {
    if (!lacks_reference() || unchecked_reference()) return {};
    const FoundColumn* const id = items_.find(options_.item_id);
    const FoundColumn* const item = votes_.find(options_.vote_item);
    const std::string cannot = adopter_.cannot_add_reference(items_, *id, votes_, *item);
    if (cannot.empty()) return {};
    return refuse_table("table " + options_.vote_table + " has no foreign key to " +
                        options_.item_table + ". It " + cannot);
}

// Names beside the vote table's, which the application may have given to tables of its own.
Result<void> Adoption::check_ours(sql::Connection& connection) const {
    struct Ours {
        const char* suffix;
        std::vector<std::string> columns;  // Empty: a view.
    };
    const std::array tables{Ours{"_anonymous", {options_.vote_item, "op_id", options_.vote_value}},
                            Ours{"_cell", {"item", "slot", "n", "ver"}},
                            Ours{"_journal", {"item", "diff"}},
                            Ours{"_meta", {"name", "value"}},
                            Ours{"_live", {}},
                            Ours{"_count", {}}};
    for (const Ours& ours : tables) {
        const sql::TableName name = vote_table_.beside(ours.suffix);
        if (ours.suffix == std::string_view{"_journal"} && !dialect_.is_server()) continue;
        HOTCOUNT_TRY_ASSIGN(FoundTable found,
                            adopter_.find(connection, name, item_table_, options_.item_id));
        const bool view = ours.columns.empty();
        if (!found.is_table && !found.is_view) continue;
        for (const std::string& column : ours.columns) found.spell(column);
        const bool whole =
            std::all_of(ours.columns.begin(), ours.columns.end(),
                        [&](const std::string& column) { return found.find(column) != nullptr; });
        if (found.is_view == view && (view || whole)) continue;
        return refuse_table("there is a " + std::string{found.is_view ? "view " : "table "} +
                            name.text() + " that is not hotcount's, which needs that name for a " +
                            (view ? "view" : "table") + " beside " + options_.vote_table +
                            ": rename one of them");
    }
    return {};
}

// The checks that need the rows.
Result<void> Adoption::check_rows(sql::Connection& connection) const {
    if (!votes_.is_table) return {};
    const std::string& table = options_.vote_table;
    std::string example;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        example = sql::to_string(row.id(0));
        return {};
    };
    for (const auto& [name, column, type] :
         {std::tuple{&options_.vote_item, &names_.vote_item, options_.item_type},
          std::tuple{&options_.vote_user, &names_.vote_user, options_.user_type}}) {
        if (votes_.find(*name) == nullptr) continue;
        const std::string other = adopter_.other_id(*column, type);
        if (other.empty()) continue;
        const sql::Statement find{statements().call("other_id", {*column, other})};
        HOTCOUNT_TRY(connection.query(find, {}, see));
        if (example.empty()) continue;
        return refuse_table(column_of(table, *name) + " has the value '" + example +
                            "', which is no id of type " + std::string{python_name(type)} +
                            ": its ids are of one type");
    }
    HOTCOUNT_TRY(check_orphans(connection));
    if (!lacks_key() || votes_.find(options_.vote_user) == nullptr) return {};
    const sql::Statement twice{statements()["voted_twice"]};
    const sql::RowVisitor see_twice = [&](const sql::Row& row) -> Result<void> {
        example = "user " + sql::to_string(row.id(1)) + " has " + std::to_string(row.integer(2)) +
                  " for item " + sql::to_string(row.id(0));
        return {};
    };
    HOTCOUNT_TRY(connection.query(twice, {}, see_twice));
    if (example.empty()) return {};
    return refuse_table("table " + table + " has several votes of one user for one item: " +
                        example + ". A user has one, so " + options_.vote_item + " and " +
                        options_.vote_user + " become a unique key: delete the others first");
}

// Votes of items that are not there: of a table of another name, or gone, which the new reference would
// not let be.
Result<void> Adoption::check_orphans(sql::Connection& connection) const {
    const bool checks = lacks_reference() && adopter_.checks_references();
    if (items_.is_table && !checks) return {};
    std::string example;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        example = sql::to_string(row.id(0));
        return {};
    };
    const sql::Statement orphan{
        statements().with("orphan", {{"has_items", sql::flag(items_.is_table)}})};
    HOTCOUNT_TRY(connection.query(orphan, {}, see));
    if (example.empty()) return {};
    if (!items_.is_table) {
        return refuse_table("there is no table " + options_.item_table + ", for whose rows table " +
                            options_.vote_table + " has votes: item_table= names it");
    }
    return refuse_table("table " + options_.vote_table + " has votes for items that table " +
                        options_.item_table + " does not have, for example item " + example +
                        ": delete those rows first, or say foreign_key=False");
}

bool Adoption::lacks_key() const {
    return votes_.is_table && !votes_.has_key({options_.vote_item, options_.vote_user});
}

// With types and defaults: an existing row is a vote of 1, and so is a row that the application
// inserts without hotcount. If the table had no user column, the user is NULL in its rows: they are
// counted as votes without a user.
std::vector<std::string> Adoption::missing_columns() const {
    std::vector<std::string> columns;
    if (!votes_.is_table) return columns;
    const std::string number = " " + dialect_.grammar().type(sql::ColumnType::integer);
    if (votes_.find(options_.vote_user) == nullptr) {
        columns.push_back(names_.vote_user + " " + names_.user_type);
    }
    if (!votes_have_values()) columns.push_back(names_.value + number + " DEFAULT 1 NOT NULL");
    if (votes_.find(options_.vote_previous) == nullptr) {
        columns.push_back(names_.previous + number + " DEFAULT 0 NOT NULL");
    }
    if (votes_.find(options_.vote_version) == nullptr) {
        columns.push_back(names_.version + number);
    }
    return columns;
}

std::string Adoption::lacking() const {
    std::vector<std::string> parts;
    const auto miss = [&](const FoundTable& table, const std::string& called,
                          const std::string& column) {
        if (table.is_table && !column.empty() && table.find(column) == nullptr) {
            parts.push_back("column " + called + "." + column);
        }
    };
    miss(items_, options_.item_table, options_.item_count);
    for (const std::string* column : {&options_.vote_user, &options_.vote_value,
                                      &options_.vote_previous, &options_.vote_version}) {
        miss(votes_, options_.vote_table, *column);
    }
    for (const FoundColumn& column : votes_.columns) {
        if (column.fills_itself || has_column_of_ours(column.name)) continue;
        parts.push_back("a default of column " + options_.vote_table + "." + column.name);
    }
    if (lacks_key()) {
        parts.push_back("a unique key over " + options_.vote_item + " and " + options_.vote_user +
                        " of table " + options_.vote_table);
    }
    std::string text;
    for (const std::string& part : parts) text += (text.empty() ? "" : ", ") + part;
    return text;
}

std::string Adoption::alterations() const {
    std::string text;
    const std::string number = " " + dialect_.grammar().type(sql::ColumnType::integer);
    if (items_.is_table && !options_.item_count.empty() && !items_have_counts()) {
        text += adopter_.add_columns(names_.item, {names_.count + number + " DEFAULT 0 NOT NULL"});
    }
    const auto columns = missing_columns();
    if (!columns.empty()) text += adopter_.add_columns(names_.vote, columns);
    for (const FoundColumn& column : votes_.columns) {
        if (column.fills_itself || has_column_of_ours(column.name)) continue;
        text += adopter_.add_default(names_.vote, sql::quote_identifier(column.name), column);
    }
    const auto is_unfinished = [&](const std::string& index) {
        return std::find(votes_.unfinished.begin(), votes_.unfinished.end(), index) !=
               votes_.unfinished.end();
    };
    if (lacks_key()) {
        const std::string key = vote_table_.beside("_one_vote").name;
        text += adopter_.add_key(vote_table_, key, names_.vote_item, names_.vote_user,
                                 is_unfinished(key));
    } else if (votes_.is_table && adopter_.cannot_add_key(votes_).empty() &&
               std::find(votes_.indexed.begin(), votes_.indexed.end(), options_.vote_item) ==
                   votes_.indexed.end()) {
        const std::string index = vote_table_.beside("_of_item").name;
        text += adopter_.add_index(vote_table_, index, names_.vote_item, is_unfinished(index));
    }
    return text;
}

std::string Adoption::reference() const {
    if (!lacks_reference()) return {};
    const auto unchecked = unchecked_reference();
    return adopter_.add_reference(
        names_, sql::quote_identifier(unchecked.value_or(vote_table_.beside("_refers").name)),
        unchecked.has_value());
}

std::string fill_text(const VoteNames& n, const VoteDialect& d, VoteStrategy strategy, bool keeps) {
    const auto sql =
        vote_statements(vote_sql::kAdoptionSql, n, d.grammar(),
                        {{"place", literal(std::string{to_string(CountPlace::journal)})},
                         {"strategy", literal(std::string{to_string(strategy)})},
                         {"route", literal(vote_route(CountPlace::journal, strategy))}});
    return d.adopter().fill_journal(n, keeps && !n.count.empty() ? sql["fill_openings"] : "",
                                    sql["fill_journal"], sql["fill_marks"]);
}

}  // namespace hotcount
