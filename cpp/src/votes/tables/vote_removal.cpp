#include "vote_removal.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "adopter.hpp"
#include "count_place.hpp"
#include "hotcount_embedded/votes/sql.hpp"
#include "sql/dialect.hpp"
#include "vote_dialect.hpp"

namespace hotcount {
namespace {

// Runs a statement with {of_ids} over ids in the database's order.
Result<void> run_of_ids(BulkStatement& statement, sql::Connection& connection,
                        const sql::Value& value, std::span<const sql::Id> ids,
                        const sql::RowVisitor* visit) {
    if (ids.empty()) return {};
    return statement.run_padded(
        connection, ids, visit,
        std::array{value, sql::to_value(ids.front()), sql::to_value(ids.back())});
}

sql::Statements removal_statements(const VotesOptions& options, const VoteNames& n,
                                   const sql::Grammar& g) {
    const auto index = sql::TableName::of(options.vote_table).beside("_by_user").name;
    return vote_statements(vote_sql::kRemovalSql, n, g,
                           {{"user_index", sql::quote_identifier(index)},
                            {"slice_rows", std::to_string(VoteRemoval::kSlice)},
                            {"last_of_slice", std::to_string(VoteRemoval::kSlice - 1)}});
}

}  // namespace

VoteRemoval::OfItem::OfItem(const sql::Statements& sql)
    : lock(sql["lock_of_item"]), remove(sql["delete_of_item"]) {}

VoteRemoval::Scan::Scan(const sql::Statements& sql, std::string_view name)
    : first(sql.with(name, {{"after", ""}})),
      next(sql.with(name, {{"after", "1"}})),
      first_end(sql.with("end_of_slice", {{"after", ""}})),
      next_end(sql.with("end_of_slice", {{"after", "1"}})) {}

VoteRemoval::VoteRemoval(const VotesOptions& options, sql::Dialect dialect)
    : VoteRemoval(options, VoteNames{options, dialect.grammar()}, vote_dialect(dialect)) {}

VoteRemoval::VoteRemoval(const VotesOptions& options, const VoteNames& n, const VoteDialect& d)
    : VoteRemoval(options, d, d.delete_without_user(n), removal_statements(options, n, d.grammar()),
                  removal_statements(options, n.anonymous(d.grammar()), d.grammar())) {}

VoteRemoval::VoteRemoval(const VotesOptions& options, const VoteDialect& d,
                         const std::string& delete_without_user, const sql::Statements& sql,
                         const sql::Statements& anonymous)
    : options_(options),
      has_journal_(d.is_server()),
      user_index_(d.adopter().for_client(sql["user_index"])),
      find_index_(d.find_index()),
      first_items_(sql["first_items"]),
      next_items_(sql["next_items"]),
      lock_of_user_(sql["lock_of_user"]),
      delete_of_user_(sql["delete_of_user"]),
      lock_items_(sql["lock_items"]),
      uncount_items_(sql["uncount_items"]),
      append_(sql["append"]),
      add_to_cells_(sql["add_to_cells"]),
      of_users_(sql),
      anonymous_(anonymous),
      find_without_user_(sql["find_without_user"]),
      delete_without_user_(delete_without_user),
      has_votes_(sql["has_votes"]),
      sum_(sql["sum_of_item"]),
      hold_item_(sql["hold_item"]),
      take_item_(sql["take_item"]),
      next_ver_(sql["next_ver"]),
      delete_journal_(sql["delete_journal"]),
      delete_cells_(sql["delete_cells"]),
      clear_count_(sql["clear_count"]),
      recount_(sql["recount_item"]),
      delete_item_(sql["delete_item"]),
      scan_of_user_(sql, "slice_of_user"),
      scan_retracted_(sql, "slice_retracted"),
      lock_retracted_(sql["lock_retracted"]),
      delete_retracted_(sql["delete_retracted"]) {}

// -- of a user ------------------------------------------------------------------------------------

Result<bool> VoteRemoval::has_user_index(sql::Connection& connection) const {
    bool found = false;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        found = row.integer(0) > 0;
        return {};
    };
    const auto table = sql::TableName::of(options_.vote_table);
    HOTCOUNT_TRY(connection.query(find_index_,
                                  {std::string_view{table.schema}, std::string_view{table.name},
                                   std::string_view{options_.vote_user}},
                                  see));
    return found;
}

Result<std::vector<sql::Id>> VoteRemoval::items_of(sql::Connection& connection, const sql::Id& user,
                                                   const std::optional<sql::Id>& after) const {
    std::vector<sql::Id> items;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        items.push_back(row.id(0));
        return {};
    };
    const sql::Value most{static_cast<std::int64_t>(kPage)};
    auto found = after ? connection.query(next_items_,
                                          {sql::to_value(user), sql::to_value(*after), most}, see)
                       : connection.query(first_items_, {sql::to_value(user), most}, see);
    if (!found) return explain_missing_table(std::move(found).error());
    return items;
}

Result<VoteRemoval::Slice> VoteRemoval::Scan::run(sql::Connection& connection,
                                                  const sql::Value& value,
                                                  const std::optional<Key>& after) const {
    Slice slice;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        slice.found.emplace_back(row.id(0), row.id(1));
        return {};
    };
    const sql::RowVisitor end = [&](const sql::Row& row) -> Result<void> {
        slice.last.emplace(row.id(0), row.id(1));
        return {};
    };
    // The end of the slice is read first: rows added between the two reads are visited twice at most.
    if (after) {
        const sql::Value item = sql::to_value(after->first);
        const sql::Value user = sql::to_value(after->second);
        HOTCOUNT_TRY(connection.query(next_end, {item, user}, end));
        HOTCOUNT_TRY(connection.query(next, {value, item, user}, see));
        return slice;
    }
    auto found = connection.query(first_end, {}, end);
    if (!found) return explain_missing_table(std::move(found).error());
    HOTCOUNT_TRY(connection.query(first, {value}, see));
    return slice;
}

Result<VoteRemoval::Slice> VoteRemoval::slice_of(sql::Connection& connection, const sql::Id& user,
                                                 const std::optional<Key>& after) const {
    return scan_of_user_.run(connection, sql::to_value(user), after);
}

Result<std::vector<VoteRemoval::Row>> VoteRemoval::lock_of_user(sql::Connection& connection,
                                                                const sql::Id& user,
                                                                std::span<const sql::Id> items) {
    std::vector<Row> votes;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        votes.push_back({row.id(0), row.integer(1), row.is_null(2) ? 0 : row.integer(2)});
        return {};
    };
    HOTCOUNT_TRY(run_of_ids(lock_of_user_, connection, sql::to_value(user), items, &see));
    return votes;
}

Result<void> VoteRemoval::delete_of_user(sql::Connection& connection, const sql::Id& user,
                                         std::span<const sql::Id> items) {
    return run_of_ids(delete_of_user_, connection, sql::to_value(user), items, nullptr);
}

Result<void> VoteRemoval::lock_items(sql::Connection& connection, std::span<const sql::Id> items) {
    if (items.empty()) return {};
    return lock_items_.run_padded(
        connection, items, &sql::kIgnoreRows,
        std::array{sql::to_value(items.front()), sql::to_value(items.back())});
}

Result<void> VoteRemoval::uncount_in_items(sql::Connection& connection, const sql::Id& user,
                                           std::span<const sql::Id> items) {
    return run_of_ids(uncount_items_, connection, sql::to_value(user), items, nullptr);
}

namespace {

// Runs the statement over (id, -value) of each vote whose value is not 0.
Result<void> run_uncounts(BulkStatement& statement, sql::Connection& connection,
                          std::span<const VoteRemoval::Row> votes) {
    std::vector<const VoteRemoval::Row*> counted;
    for (const auto& vote : votes) {
        if (vote.value != 0) counted.push_back(&vote);
    }
    std::vector<sql::Value> values;
    for (std::size_t done = 0; done < counted.size();) {
        const std::size_t size = BulkStatement::portion(counted.size() - done);
        values.clear();
        for (std::size_t i = 0; i < size; ++i, ++done) {
            values.push_back(sql::to_value(counted[done]->id));
            values.emplace_back(-counted[done]->value);
        }
        auto run = connection.run(statement.of(size), values, nullptr);
        if (!run) return std::move(run).error();
    }
    return {};
}

}  // namespace

Result<void> VoteRemoval::uncount_in_journal(sql::Connection& connection,
                                             std::span<const Row> votes) {
    return run_uncounts(append_, connection, votes);
}

Result<void> VoteRemoval::uncount_in_cells(sql::Connection& connection,
                                           std::span<const Row> votes) {
    return run_uncounts(add_to_cells_, connection, votes);
}

// -- of an item -----------------------------------------------------------------------------------

namespace {

Result<bool> any_row(sql::Connection& connection, const sql::Statement& statement,
                     const sql::Id& item) {
    bool found = false;
    const sql::RowVisitor see = [&](const sql::Row&) -> Result<void> {
        found = true;
        return {};
    };
    HOTCOUNT_TRY(connection.query(statement, {sql::to_value(item)}, see));
    return found;
}

}  // namespace

Result<std::vector<VoteRemoval::Row>> VoteRemoval::lock_of_item(sql::Connection& connection,
                                                                Table table, const sql::Id& item,
                                                                std::int64_t until,
                                                                std::size_t limit) const {
    std::vector<Row> votes;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        votes.push_back({row.id(0), row.integer(1), row.is_null(2) ? 0 : row.integer(2)});
        return {};
    };
    HOTCOUNT_TRY(connection.query(
        of(table).lock, {sql::to_value(item), until, static_cast<std::int64_t>(limit)}, see));
    return votes;
}

Result<void> VoteRemoval::delete_of_item(sql::Connection& connection, Table table,
                                         const sql::Id& item, std::span<const Row> votes) {
    std::vector<sql::Id> ids;
    ids.reserve(votes.size());
    for (const Row& vote : votes) ids.push_back(vote.id);
    return run_of_ids(of(table).remove, connection, sql::to_value(item), ids, nullptr);
}

Result<std::vector<VoteRemoval::WithoutUser>> VoteRemoval::delete_without_user(
    sql::Connection& connection, const sql::Id& item, std::size_t limit) const {
    std::map<std::int64_t, std::int64_t> found;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        ++found[row.integer(0)];
        return {};
    };
    const sql::Value id = sql::to_value(item);
    HOTCOUNT_TRY(connection.query(find_without_user_, {id, static_cast<std::int64_t>(limit)}, see));
    // These rows have no ids: they are deleted by value and number.
    std::vector<WithoutUser> gone;
    for (const auto& [value, number] : found) {
        HOTCOUNT_TRY_ASSIGN(const std::int64_t deleted,
                            connection.execute(delete_without_user_, {id, value, number}));
        gone.push_back({value, number, deleted});
    }
    return gone;
}

Result<bool> VoteRemoval::has_votes(sql::Connection& connection, const sql::Id& item) const {
    return any_row(connection, has_votes_, item);
}

Result<std::int64_t> VoteRemoval::sum_of(sql::Connection& connection, const sql::Id& item) const {
    std::int64_t sum = 0;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        sum = row.integer(0);
        return {};
    };
    HOTCOUNT_TRY(connection.query(sum_, {sql::to_value(item)}, see));
    return sum;
}

Result<bool> VoteRemoval::hold_item(sql::Connection& connection, const sql::Id& item) const {
    return any_row(connection, hold_item_, item);
}

Result<bool> VoteRemoval::take_item(sql::Connection& connection, const sql::Id& item) const {
    return any_row(connection, take_item_, item);
}

Result<std::int64_t> VoteRemoval::delete_counts(sql::Connection& connection, const sql::Id& item,
                                                bool has_row, ItemLock lock) const {
    std::int64_t ver = 0;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        ver = row.integer(0);
        return {};
    };
    const sql::Value id = sql::to_value(item);
    HOTCOUNT_TRY(connection.query(next_ver_, {id}, see));
    if (has_journal_) HOTCOUNT_TRY(connection.execute(delete_journal_, {id}));
    HOTCOUNT_TRY(connection.execute(delete_cells_, {id}));
    if (has_row && !options_.item_count.empty()) {
        HOTCOUNT_TRY(connection.execute(lock == ItemLock::taken ? clear_count_ : recount_, {id}));
    }
    return ver;
}

Result<void> VoteRemoval::delete_item(sql::Connection& connection, const sql::Id& item) const {
    HOTCOUNT_TRY(connection.execute(delete_item_, {sql::to_value(item)}));
    return {};
}

// -- retracted votes ------------------------------------------------------------------------------

Result<VoteRemoval::Slice> VoteRemoval::retracted(sql::Connection& connection, std::int64_t before,
                                                  const std::optional<Key>& after) const {
    return scan_retracted_.run(connection, sql::Value{before}, after);
}

Result<std::int64_t> VoteRemoval::delete_retracted(sql::Connection& connection, std::int64_t before,
                                                   std::span<const Key> keys) {
    std::int64_t deleted = 0;
    std::vector<sql::Value> values;
    while (!keys.empty()) {
        const auto part = keys.first(BulkStatement::padded_portion(keys.size()));
        keys = keys.subspan(part.size());
        const std::size_t size = BulkStatement::padded(part.size());
        values.assign(1, sql::Value{before});
        for (std::size_t i = 0; i < size; ++i) {
            const Key& key = part[std::min(i, part.size() - 1)];
            values.push_back(sql::to_value(key.first));
            values.push_back(sql::to_value(key.second));
        }
        HOTCOUNT_TRY(connection.run(lock_retracted_.of(size), values, &sql::kIgnoreRows));
        HOTCOUNT_TRY_ASSIGN(const std::int64_t gone,
                            connection.run(delete_retracted_.of(size), values, nullptr));
        deleted += gone;
    }
    return deleted;
}

}  // namespace hotcount
