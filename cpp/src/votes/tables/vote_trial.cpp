// Trial votes: written to the application's table to find triggers and checks that would make counts
// wrong. The caller rolls them back.
#include <optional>

#include "adoption.hpp"
#include "vote_dialect.hpp"

namespace hotcount {

Result<void> Adoption::try_vote(sql::Connection& connection, const sql::Id& item,
                                const sql::Id& user, std::int64_t value) const {
    std::int64_t count = 0;
    const sql::RowVisitor see_count = [&](const sql::Row& row) -> Result<void> {
        count = row.integer(0);
        return {};
    };
    const sql::Statements sql = statements();
    const sql::Statement read_count{
        sql.with("count_of_item", {{"has_count", sql::flag(items_have_counts())}})};
    HOTCOUNT_TRY(connection.query(read_count, {sql::to_value(item)}, see_count));
    const std::int64_t before = count;
    const sql::Statement write{sql["try_vote"]};
    auto done = connection.execute(write, {sql::to_value(item), sql::to_value(user), value});
    if (!done && done.error().code == ErrorCode::integrity) {
        return refuse_table("table " + options_.vote_table + " takes no vote of " +
                            std::to_string(value) +
                            " (a retracted vote has 0): " + done.error().message);
    }
    HOTCOUNT_TRY(std::move(done));
    std::optional<std::int64_t> written;
    const sql::RowVisitor see_written = [&](const sql::Row& row) -> Result<void> {
        written = row.integer(0);
        return {};
    };
    const sql::Statement read{sql["tried_vote"]};
    HOTCOUNT_TRY(connection.query(read, {sql::to_value(item), sql::to_value(user)}, see_written));
    if (written != value) {
        return refuse_table(
            "a trigger of table " + options_.vote_table + " changes votes: after a vote of " +
            std::to_string(value) +
            (written ? " column " + options_.vote_value + " has " + std::to_string(*written)
                     : std::string{" there is no row"}) +
            ", and counts would differ from the votes: drop the trigger, or have it leave "
            "these columns alone");
    }
    HOTCOUNT_TRY(connection.query(read_count, {sql::to_value(item)}, see_count));
    if (count == before) return {};
    return refuse_table(
        "a trigger of table " + options_.vote_table + " changes " + options_.item_table + "." +
        options_.item_count +
        " with each vote, which would be counted twice: drop it, or let item_count= name "
        "a column of its own");
}

Result<void> Adoption::try_rules(sql::Connection& connection) const {
    const sql::Statements sql = statements();
    std::optional<sql::Id> item;
    sql::Id user;
    std::int64_t value = 0;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        item = row.id(0);
        user = row.id(1);
        value = row.integer(2);
        return {};
    };
    const sql::Statement any{sql["any_vote"]};
    HOTCOUNT_TRY(connection.query(any, {}, see));
    if (!item) return {};
    std::optional<sql::Id> fresh;
    const sql::RowVisitor see_fresh = [&](const sql::Row& row) -> Result<void> {
        fresh = row.id(0);
        return {};
    };
    const sql::Statement other{sql["other_item"]};
    HOTCOUNT_TRY(connection.query(other, {sql::to_value(user)}, see_fresh));
    // Only a value that the application has written, and 0, the value of a retracted vote.
    if (fresh) HOTCOUNT_TRY(try_vote(connection, *fresh, user, value));
    HOTCOUNT_TRY(try_vote(connection, *item, user, 0));
    return try_vote(connection, *item, user, value);
}

}  // namespace hotcount
