#include "adoption.hpp"

#include <algorithm>
#include <optional>
#include <tuple>

#include "vote_dialect.hpp"

namespace hotcount {
namespace {

Error refuse(const std::string& what) {
    return make_error(ErrorCode::config, what + ". Nothing was changed");
}

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

Adoption::Adoption(const VotesOptions& options, const VoteDialect& dialect)
    : options_(options),
      names_(options, dialect.grammar()),
      dialect_(dialect),
      adopter_(dialect.adopter()),
      item_table_(sql::TableName::of(options.item_table)),
      vote_table_(sql::TableName::of(options.vote_table)) {}

Result<void> Adoption::look(sql::Connection& connection) {
    HOTCOUNT_TRY_ASSIGN(items_,
                        adopter_.find(connection, item_table_, item_table_, options_.item_id));
    HOTCOUNT_TRY_ASSIGN(votes_,
                        adopter_.find(connection, vote_table_, item_table_, options_.item_id));
    HOTCOUNT_TRY(check_items());
    HOTCOUNT_TRY(check_votes());
    return check_rows(connection);
}

Result<void> Adoption::check_ids(const FoundColumn* column, const std::string& table,
                                 const std::string& name, IdType type, const char* option) const {
    if (column == nullptr) return {};
    if (column->generated) {
        return refuse(column_of(table, name) + " is generated, and a vote has to write it");
    }
    if (adopter_.holds(*column, type)) return {};
    return refuse(column_of(table, name) + " is of type " + column->type + ", and " + option +
                  " is " + std::string{python_name(type)} +
                  ": say what the column has, or give it that type");
}

Result<void> Adoption::check_items() const {
    const std::string& table = options_.item_table;
    if (items_.is_view) {
        return refuse(table +
                      " is a view, and rows of a view cannot be locked: item_table names "
                      "the table behind it");
    }
    if (!items_.is_table) return {};
    const FoundColumn* const id = items_.find(options_.item_id);
    if (id == nullptr) {
        return refuse("table " + table + " has no column " + options_.item_id +
                      ": item_id= names its key");
    }
    HOTCOUNT_TRY(check_ids(id, table, options_.item_id, options_.item_type, "item_type"));
    if (!items_.has_key({options_.item_id})) {
        return refuse(column_of(table, options_.item_id) +
                      " is no key, so two items may have one id: make it the primary key, or give "
                      "it a unique index");
    }
    const FoundColumn* const count = items_.find(options_.item_count);
    if (count != nullptr && (count->kind != FoundColumn::Kind::integer || count->generated)) {
        return refuse(column_of(table, options_.item_count) + " is " +
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
        return refuse(table + " is a view, and votes are stored in a table: vote_table names it");
    }
    if (!votes_.is_table) return {};
    const FoundColumn* const item = votes_.find(options_.vote_item);
    if (item == nullptr) {
        return refuse("table " + table + " has no column " + options_.vote_item +
                      ": vote_item= names the one that holds the item");
    }
    HOTCOUNT_TRY(check_ids(item, table, options_.vote_item, options_.item_type, "item_type"));
    HOTCOUNT_TRY(check_ids(votes_.find(options_.vote_user), table, options_.vote_user,
                           options_.user_type, "user_type"));
    const FoundColumn* const id = items_.find(options_.item_id);
    if (id != nullptr && !id->collation.empty() && !item->collation.empty() &&
        id->collation != item->collation) {
        return refuse("columns " + options_.item_table + "." + options_.item_id + " and " + table +
                      "." + options_.vote_item + " have the collations " + id->collation + " and " +
                      item->collation + ", by which they cannot be compared: give them the same");
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
            return refuse(column_of(table, *name) + " is " +
                          (column->generated ? "generated" : "of type " + column->type) +
                          ", and a vote writes an integer there" + other);
        }
        if (nullable && !column->may_be_null) {
            return refuse(column_of(table, *name) +
                          " is NOT NULL, and a vote without a version writes NULL there" + other);
        }
        if (!nullable && column->may_be_null) {
            return refuse(column_of(table, *name) +
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
        return refuse(column_of(table, column.name) +
                      " is NOT NULL and has no default, and a vote does not fill it: give it a "
                      "default, or let it be NULL");
    }
    for (const auto& key : votes_.keys) {
        const auto has = [&](const std::string& name) {
            return std::find(key.begin(), key.end(), name) != key.end();
        };
        const bool ours = std::all_of(key.begin(), key.end(), [&](const std::string& name) {
            return has_column_of_ours(name);
        });
        if (!ours || (has(options_.vote_item) && has(options_.vote_user))) continue;
        return refuse("table " + table + " has a unique key over " + key.front() +
                      (key.size() > 1 ? " and others" : "") +
                      ", by which the vote for one item would replace that for another: a vote is "
                      "told by " +
                      options_.vote_item + " and " + options_.vote_user + " together; drop it");
    }
    return {};
}

// What only the rows can tell.
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
        const sql::Statement find{"SELECT CAST(" + *column + " AS TEXT) FROM " + names_.vote +
                                  " WHERE " + other + " LIMIT 1"};
        HOTCOUNT_TRY(connection.query(find, {}, see));
        if (example.empty()) continue;
        return refuse(column_of(table, *name) + " has the value '" + example +
                      "', which is no id of type " + std::string{python_name(type)} +
                      ": its ids are of one type");
    }
    if (!lacks_key() || votes_.find(options_.vote_user) == nullptr) return {};
    const sql::Statement twice{"SELECT " + names_.vote_item + ", " + names_.vote_user +
                               ", COUNT(*) FROM " + names_.vote + " WHERE " + names_.vote_item +
                               " IS NOT NULL AND " + names_.vote_user + " IS NOT NULL GROUP BY " +
                               names_.vote_item + ", " + names_.vote_user +
                               " HAVING COUNT(*) > 1 LIMIT 1"};
    const sql::RowVisitor see_twice = [&](const sql::Row& row) -> Result<void> {
        example = "user " + sql::to_string(row.id(1)) + " has " + std::to_string(row.integer(2)) +
                  " for item " + sql::to_string(row.id(0));
        return {};
    };
    HOTCOUNT_TRY(connection.query(twice, {}, see_twice));
    if (example.empty()) return {};
    return refuse("table " + table + " has several votes of one user for one item: " + example +
                  ". A user has one, so " + options_.vote_item + " and " + options_.vote_user +
                  " become a unique key: delete the others first");
}

Result<void> Adoption::try_triggers(sql::Connection& connection) const {
    const VoteNames& n = names_;
    const sql::Grammar& g = dialect_.grammar();
    std::optional<sql::Id> item;
    sql::Id user;
    std::int64_t value = 1;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        item = row.id(0);
        user = row.id(1);
        value = row.integer(2) == 1 ? 2 : 1;
        return {};
    };
    const sql::Statement any{"SELECT " + n.vote_item + ", " + n.vote_user + ", " + n.value +
                             " FROM " + n.vote + " WHERE " + n.vote_user + " IS NOT NULL LIMIT 1"};
    HOTCOUNT_TRY(connection.query(any, {}, see));
    if (!item) return {};
    const sql::Statement write{
        "INSERT INTO " + n.vote + " (" + n.vote_item + ", " + n.vote_user + ", " + n.value + ", " +
        n.previous + ", " + n.version + ") VALUES (?1, ?2, ?3, 0, NULL)" +
        g.or_update(n.vote_item + ", " + n.vote_user) + n.previous + " = " +
        g.own(n.vote, n.value) + ", " + n.value + " = " + g.excluded(n.value)};
    HOTCOUNT_TRY(connection.execute(write, {sql::to_value(*item), sql::to_value(user), value}));
    std::optional<std::int64_t> written;
    const sql::RowVisitor see_written = [&](const sql::Row& row) -> Result<void> {
        written = row.integer(0);
        return {};
    };
    const sql::Statement read{"SELECT " + n.value + " FROM " + n.vote + " WHERE " + n.vote_item +
                              " = ?1 AND " + n.vote_user + " = ?2"};
    HOTCOUNT_TRY(connection.query(read, {sql::to_value(*item), sql::to_value(user)}, see_written));
    if (written == value) return {};
    return refuse("a trigger of table " + options_.vote_table +
                  " changes what is written: column " + options_.vote_value + " has " +
                  (written ? std::to_string(*written) : std::string{"no row"}) + " where " +
                  std::to_string(value) +
                  " was written, and counts would not be the votes': drop it, or have it leave "
                  "these columns alone");
}

bool Adoption::lacks_key() const {
    return votes_.is_table && !votes_.has_key({options_.vote_item, options_.vote_user});
}

// With types and defaults: a row that is there is a vote of 1, and so is one that the application
// inserts without hotcount. A user that the table never had is NULL in its rows: those are counted,
// and are nobody's.
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
    } else if (votes_.is_table && std::find(votes_.indexed.begin(), votes_.indexed.end(),
                                            options_.vote_item) == votes_.indexed.end()) {
        const std::string index = vote_table_.beside("_of_item").name;
        text += adopter_.add_index(vote_table_, index, names_.vote_item, is_unfinished(index));
    }
    return text;
}

std::string Adoption::reference() const {
    if (!options_.foreign_key || !votes_.is_table) return {};
    const auto& refers = votes_.refers;
    if (std::find(refers.begin(), refers.end(), options_.vote_item) != refers.end()) return {};
    return adopter_.add_reference(names_,
                                  sql::quote_identifier(vote_table_.beside("_refers").name));
}

std::string fill_text(const VoteNames& n, const VoteDialect& d, VoteStrategy strategy, bool keeps) {
    const std::string uncounted =
        "NOT EXISTS (SELECT 1 FROM " + n.meta + " WHERE name = 'counted_in')";
    const std::string own = n.own_count("hc_i");
    const std::string from = " FROM " + n.item +
                             " AS hc_i LEFT JOIN (SELECT item, SUM(n) AS n FROM "
                             "(SELECT " +
                             n.vote_item + " AS item, " + n.value + " AS n FROM " + n.vote +
                             " UNION ALL SELECT " + n.vote_item + ", " + n.value + " FROM " +
                             n.anonymous_vote +
                             ") AS hc_v GROUP BY item) AS hc_s ON hc_s.item = "
                             "hc_i." +
                             n.id + " WHERE " + uncounted;
    const std::string openings = "INSERT INTO " + n.cell + " (item, slot, n, ver) SELECT hc_i." +
                                 n.id + ", " + std::to_string(kOpeningSlot) + ", " + own +
                                 " - COALESCE(hc_s.n, 0), 1" + from + " AND " + own + " <> 0 AND " +
                                 own + " <> COALESCE(hc_s.n, 0)";
    // A row of 0 has a fold bring the item's own count up to date.
    const std::string rows = "INSERT INTO " + n.journal + " (item, diff) SELECT hc_i." + n.id +
                             ", COALESCE(hc_s.n, 0)" + from + " AND (hc_s.n IS NOT NULL OR " + own +
                             " <> 0)";
    const std::string marks = "INSERT INTO " + n.meta +
                              " (name, value) SELECT hc_m.mark, hc_m.is_now FROM (SELECT "
                              "'counted_in' AS mark, '" +
                              std::string{to_string(CountPlace::journal)} +
                              "' AS is_now UNION ALL SELECT 'counted_by', '" +
                              std::string{to_string(strategy)} + "') AS hc_m WHERE " + uncounted +
                              d.grammar().or_update("name") +
                              "value = " + d.grammar().excluded("value");
    return d.adopter().fill_journal(n, keeps && !n.count.empty() ? openings : "", rows, marks);
}

}  // namespace hotcount
