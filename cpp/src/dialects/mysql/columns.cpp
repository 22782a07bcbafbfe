// The abilities of the server, and the columns of existing tables.
#include <hotcount/detail/base/check.hpp>

#include "dialect.hpp"
#include "vote_rows.hpp"

namespace hotcount {
namespace {

bool compares_bytes(IdType type, std::string_view data_type, std::string_view collation) {
    if (type == IdType::integer) return data_type.ends_with("int");
    if (data_type == "varbinary" || collation.ends_with("nopad_bin") ||
        collation.ends_with("0900_bin")) {
        return true;
    }
    // Every UUID has the same length, so nothing is padded.
    return type == IdType::uuid && (data_type == "uuid" || collation.ends_with("_bin"));
}

}  // namespace

KeyColumns::KeyColumns(const VotesOptions& options)
    : options_(options),
      items_(sql::TableName::of(options.item_table)),
      votes_(sql::TableName::of(options.vote_table)),
      types_(sql::mysql_catalog()["key_types"]),
      references_(sql::mysql_catalog()["references"]) {}

Result<bool> KeyColumns::refer_to_items(sql::Connection& connection) {
    if (const int known = refer_.load(std::memory_order_relaxed); known >= 0) return known != 0;
    bool refer = true;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        refer = refer && row.integer(0) > 0;
        return {};
    };
    for (const sql::TableName& table : {votes_, votes_.beside("_anonymous")}) {
        HOTCOUNT_TRY(
            connection.query(references_,
                             {std::string_view{table.schema}, std::string_view{table.name},
                              std::string_view{options_.vote_item}, std::string_view{items_.schema},
                              std::string_view{items_.name}, std::string_view{options_.item_id}},
                             see));
    }
    // An answer from before the tables exist is not kept.
    HOTCOUNT_TRY(are_bytes(connection));
    if (known_.load(std::memory_order_relaxed) >= 0) {
        refer_.store(refer ? 1 : 0, std::memory_order_relaxed);
    }
    return refer;
}

Result<bool> KeyColumns::are_bytes(sql::Connection& connection) {
    if (const int known = known_.load(std::memory_order_relaxed); known >= 0) return known != 0;
    int found = 0;
    int fit = 0;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        ++found;
        const bool user = row.integer(0) != 0;
        const IdType type = user ? options_.user_type : options_.item_type;
        if (compares_bytes(type, row.text(1), row.text(2))) ++fit;
        return {};
    };
    HOTCOUNT_TRY(
        connection.query(types_,
                         {std::string_view{votes_.schema}, std::string_view{votes_.name},
                          std::string_view{options_.vote_item},
                          std::string_view{options_.vote_user}, std::string_view{items_.schema},
                          std::string_view{items_.name}, std::string_view{options_.item_id}},
                         see));
    constexpr int kColumns = 3;
    // An answer from before the tables exist is not kept.
    if (found == kColumns) known_.store(fit == kColumns ? 1 : 0, std::memory_order_relaxed);
    return fit == kColumns;
}

Result<bool> CompoundStatements::known_to(sql::Connection& connection) {
    if (const int known = known_.load(std::memory_order_relaxed); known >= 0) return known != 0;
    static const sql::Statement kIsMariaDb{sql::mysql_catalog()["is_mariadb"]};
    int known = 0;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        known = row.integer(0) != 0 ? 1 : 0;
        return {};
    };
    HOTCOUNT_TRY(connection.query(kIsMariaDb, {}, see));
    known_.store(known, std::memory_order_relaxed);
    return known != 0;
}

Result<std::string> mysql_item_type(sql::Connection& connection, const VotesOptions& options) {
    static const sql::Statement kType{sql::mysql_catalog()["column_type"]};
    std::string type;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        type = row.text(0);
        if (!row.is_null(2)) {
            type += " CHARACTER SET " + std::string{row.text(1)} + " COLLATE " +
                    std::string{row.text(2)};
        }
        return {};
    };
    const auto items = sql::TableName::of(options.item_table);
    HOTCOUNT_TRY(connection.query(kType,
                                  {std::string_view{items.schema}, std::string_view{items.name},
                                   std::string_view{options.item_id}},
                                  see));
    return type;
}

}  // namespace hotcount
