#include "journal.hpp"

#include <algorithm>
#include <hotcount/detail/sql/transaction.hpp>

#include "hotcount_embedded/votes/sql.hpp"
#include "votes/tables/count_place.hpp"

namespace hotcount {

sql::Statements backlog_statements(const VoteNames& n, const sql::Grammar& g,
                                   const std::string& number) {
    return vote_statements(vote_sql::kCountsSql, n, g, {{"number", number}});
}

Result<JournalBacklog> read_backlog(sql::Database& database, const sql::Statement& statement,
                                    Deadline deadline) {
    JournalBacklog backlog{};
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        backlog = {row.integer(0), row.integer(1),
                   std::chrono::microseconds{std::max<std::int64_t>(row.integer(2), 0)}};
        return {};
    };
    const auto ask = [&](sql::Connection& connection) -> Result<void> {
        auto asked = connection.query(statement, {}, read);
        return asked ? Result<void>{} : explain_missing_table(std::move(asked).error());
    };
    HOTCOUNT_TRY(sql::read_snapshot(database, deadline, ask));
    return backlog;
}

Result<JournalLook> read_look(sql::Database& database, const sql::Statement& statement,
                              Deadline deadline) {
    JournalLook look{};
    const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
        look = {row.integer(0) != 0, row.integer(1) != 0,
                std::chrono::microseconds{row.integer(2)}};
        return {};
    };
    const auto ask = [&](sql::Connection& connection) -> Result<void> {
        HOTCOUNT_TRY(connection.read_alone(statement, {}, &read, deadline));
        return {};
    };
    HOTCOUNT_TRY(sql::read_statement(database, deadline, ask));
    return look;
}

Result<std::vector<sql::Id>> read_items(sql::Database& database, const sql::Statement& statement,
                                        Deadline deadline) {
    const auto ask = [&](sql::Connection& connection) -> Result<std::vector<sql::Id>> {
        std::vector<sql::Id> items;
        const sql::RowVisitor read = [&](const sql::Row& row) -> Result<void> {
            items.push_back(row.id(0));
            return {};
        };
        HOTCOUNT_TRY(connection.query(statement, {static_cast<std::int64_t>(kFoldPage)}, read));
        return items;
    };
    // In a write session: a process that folds has one, and a read session would be one more.
    return sql::transact(database, deadline, ask);
}

std::int64_t microseconds_of(Duration time) {
    return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

}  // namespace hotcount
