// Votes that are cast into the application's table to see what its triggers and checks make of them,
// and rolled back.
#include <optional>

#include "adoption.hpp"
#include "vote_dialect.hpp"

namespace hotcount {

Result<void> Adoption::try_vote(sql::Connection& connection, const sql::Id& item,
                                const sql::Id& user, std::int64_t value) const {
    const VoteNames& n = names_;
    const sql::Grammar& g = dialect_.grammar();
    std::int64_t count = 0;
    const sql::RowVisitor see_count = [&](const sql::Row& row) -> Result<void> {
        count = row.integer(0);
        return {};
    };
    const bool counts = items_have_counts();
    const sql::Statement read_count{"SELECT " + (counts ? n.own_count(n.item) : "0") + " FROM " +
                                    n.item + " WHERE " + n.id + " = ?1"};
    HOTCOUNT_TRY(connection.query(read_count, {sql::to_value(item)}, see_count));
    const std::int64_t before = count;
    const sql::Statement write{
        std::string{g.own_write()} + "INSERT INTO " + n.vote + " (" + n.vote_item + ", " +
        n.vote_user + ", " + n.value + ", " + n.previous + ", " + n.version +
        ") VALUES (?1, ?2, ?3, 0, NULL)" + g.or_update(n.vote_item + ", " + n.vote_user) +
        n.previous + " = " + g.own(n.vote, n.value) + ", " + n.value + " = " + g.excluded(n.value)};
    auto done = connection.execute(write, {sql::to_value(item), sql::to_value(user), value});
    if (!done && done.error().code == ErrorCode::integrity) {
        return refuse_table("table " + options_.vote_table + " takes no vote of " +
                            std::to_string(value) +
                            ", where 0 is a retracted one: " + done.error().message);
    }
    HOTCOUNT_TRY(std::move(done));
    std::optional<std::int64_t> written;
    const sql::RowVisitor see_written = [&](const sql::Row& row) -> Result<void> {
        written = row.integer(0);
        return {};
    };
    const sql::Statement read{"SELECT " + n.value + " FROM " + n.vote + " WHERE " + n.vote_item +
                              " = ?1 AND " + n.vote_user + " = ?2"};
    HOTCOUNT_TRY(connection.query(read, {sql::to_value(item), sql::to_value(user)}, see_written));
    if (written != value) {
        return refuse_table(
            "a trigger of table " + options_.vote_table + " changes what is written: column " +
            options_.vote_value + " has " +
            (written ? std::to_string(*written) : std::string{"no row"}) + " where " +
            std::to_string(value) +
            " was written, and counts would not be the votes': drop it, or have it leave "
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
    const VoteNames& n = names_;
    std::optional<sql::Id> item;
    sql::Id user;
    std::int64_t value = 0;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        item = row.id(0);
        user = row.id(1);
        value = row.integer(2);
        return {};
    };
    const sql::Statement any{"SELECT " + n.vote_item + ", " + n.vote_user + ", " + n.value +
                             " FROM " + n.vote + " WHERE " + n.vote_item + " IS NOT NULL AND " +
                             n.vote_user + " IS NOT NULL AND " + n.value + " <> 0 LIMIT 1"};
    HOTCOUNT_TRY(connection.query(any, {}, see));
    if (!item) return {};
    std::optional<sql::Id> fresh;
    const sql::RowVisitor see_fresh = [&](const sql::Row& row) -> Result<void> {
        fresh = row.id(0);
        return {};
    };
    const sql::Statement other{"SELECT hc_i." + n.id + " FROM " + n.item +
                               " AS hc_i WHERE NOT EXISTS (SELECT 1 FROM " + n.vote +
                               " AS hc_v WHERE hc_v." + n.vote_item + " = hc_i." + n.id +
                               " AND hc_v." + n.vote_user + " = ?1) LIMIT 1"};
    HOTCOUNT_TRY(connection.query(other, {sql::to_value(user)}, see_fresh));
    // Only values that the application has, and the one of a retracted vote.
    if (fresh) HOTCOUNT_TRY(try_vote(connection, *fresh, user, value));
    HOTCOUNT_TRY(try_vote(connection, *item, user, 0));
    return try_vote(connection, *item, user, value);
}

}  // namespace hotcount
