#include "vote_removal.hpp"

#include <algorithm>
#include <array>
#include <map>

#include "adopter.hpp"
#include "count_place.hpp"
#include "sql/table_name.hpp"
#include "vote_dialect.hpp"

namespace hotcount {
namespace {

std::string pair(std::size_t first) {
    return "(" + placeholder(first) + ", " + placeholder(first + 1) + ")";
}

// Of the rows whose `column` is one of a page's ids. `head` has used one placeholder; ?2 and ?3 are
// the first and the last id. Without that range MariaDB may read, and lock, whatever another index
// has for ?1: all votes of a user, or for an item. `id`: makes an id of a placeholder.
BulkStatement of_ids(const std::string& head, const std::string& column, std::string tail = "",
                     const BulkStatement::Row& id = placeholder) {
    return BulkStatement{
        head + column + " BETWEEN " + id(2) + " AND " + id(3) + " AND " + column + " IN (",
        id,
        1,
        ", ",
        ")" + std::move(tail),
        3};
}

// Runs such a statement over ids in the database's order.
Result<void> run_of_ids(BulkStatement& statement, sql::Connection& connection,
                        const sql::Value& value, std::span<const sql::Id> ids,
                        const sql::RowVisitor* visit) {
    if (ids.empty()) return {};
    return statement.run_padded(
        connection, ids, visit,
        std::array{value, sql::to_value(ids.front()), sql::to_value(ids.back())});
}

// An item's id that was found among the votes: the item table's ids may be narrower.
BulkStatement::Row item_id(const VotesOptions& options, const sql::Grammar& g) {
    return [type = options.item_type, &g](std::size_t number) {
        return id_parameter(g, placeholder(number), type);
    };
}

// A key in a statement whose first placeholder is another value's.
BulkStatement of_keys(const VoteNames& n, const std::string& head, const std::string& tail) {
    return BulkStatement{head + " AND (",
                         [n](std::size_t first) {
                             return "(" + n.vote_item + " = " + placeholder(first) + " AND " +
                                    n.vote_user + " = " + placeholder(first + 1) + ")";
                         },
                         2,
                         " OR ",
                         ")" + tail,
                         1};
}

std::string delete_votes(const VoteNames& n, const sql::Grammar& g) {
    return std::string{g.own_write()} + "DELETE FROM " + n.vote + " WHERE ";
}

// Rows of an application's table that are nobody's have no key to be found by.
std::string somebodys(const VoteNames& n) {
    return n.vote_item + " IS NOT NULL AND " + n.vote_user + " IS NOT NULL";
}

// A vote without a version is older than any that has one.
std::string retracted_before(const std::string& value, const std::string& version) {
    return value + " = 0 AND (" + version + " IS NULL OR " + version + " < ?1)";
}

}  // namespace

VoteRemoval::OfItem::OfItem(const VoteNames& n, const sql::Grammar& g, const std::string& item)
    : lock("SELECT " + n.vote_user + ", " + n.value + ", " + n.version + " FROM " + n.vote +
           " WHERE " + n.vote_item + " = " + item + " AND " + n.vote_user + " IS NOT NULL AND (" +
           n.version + " IS NULL OR " + n.version + " <= ?2) ORDER BY " + n.vote_user +
           " LIMIT ?3" + g.for_update()),
      remove(of_ids(delete_votes(n, g) + n.vote_item + " = ?1 AND ", n.vote_user)) {}

namespace {

// The next kSlice rows in the order of the key; `after`: a condition, or empty.
std::string slice(const VoteNames& n, const std::string& columns, const std::string& after) {
    return "SELECT " + columns + " FROM " + n.vote + " WHERE " + somebodys(n) +
           (after.empty() ? "" : " AND " + after) + " ORDER BY " + n.vote_item + ", " +
           n.vote_user + " LIMIT ";
}

std::string found_in_slice(const VoteNames& n, const std::string& after, const std::string& which) {
    const std::string columns = n.vote_item + " AS item, " + n.vote_user + " AS voter, " + n.value +
                                " AS val, " + n.version + " AS version";
    return "SELECT hc_s.item, hc_s.voter FROM (" + slice(n, columns, after) +
           std::to_string(VoteRemoval::kSlice) + ") AS hc_s WHERE " + which +
           " ORDER BY hc_s.item, hc_s.voter";
}

std::string end_of_slice(const VoteNames& n, const std::string& after) {
    return slice(n, n.vote_item + ", " + n.vote_user, after) + "1 OFFSET " +
           std::to_string(VoteRemoval::kSlice - 1);
}

}  // namespace

VoteRemoval::Scan::Scan(const VoteNames& n, const sql::Grammar& g, const std::string& which)
    : first(found_in_slice(n, "", which)),
      next(found_in_slice(n, g.pair_after(n.vote_item, n.vote_user, "?2", "?3"), which)),
      first_end(end_of_slice(n, "")),
      next_end(end_of_slice(n, g.pair_after(n.vote_item, n.vote_user, "?1", "?2"))) {}

VoteRemoval::VoteRemoval(const VotesOptions& options, sql::Dialect dialect)
    : VoteRemoval(options, VoteNames{options, dialect.grammar()}, vote_dialect(dialect)) {}

VoteRemoval::VoteRemoval(const VotesOptions& options, const VoteNames& n, const VoteDialect& d)
    : VoteRemoval(options, n, d, id_parameter(d.grammar(), "?1", options.item_type),
                  id_parameter(d.grammar(), "?1", options.user_type)) {}

VoteRemoval::VoteRemoval(const VotesOptions& options, const VoteNames& n, const VoteDialect& d,
                         const std::string& item, const std::string& user)
    : options_(options),
      has_journal_(d.is_server()),
      user_index_(d.adopter().for_client(
          "CREATE INDEX " +
          sql::quote_identifier(sql::TableName::of(options.vote_table).beside("_by_user").name) +
          " ON " + n.vote + " (" + n.vote_user + ", " + n.vote_item + ")")),
      find_index_(d.find_index()),
      first_items_("SELECT " + n.vote_item + " FROM " + n.vote + " WHERE " + n.vote_user + " = " +
                   user + " ORDER BY " + n.vote_item + " LIMIT ?2"),
      next_items_("SELECT " + n.vote_item + " FROM " + n.vote + " WHERE " + n.vote_user + " = " +
                  user + " AND " + n.vote_item + " > ?2 ORDER BY " + n.vote_item + " LIMIT ?3"),
      lock_of_user_(of_ids("SELECT " + n.vote_item + ", " + n.value + ", " + n.version + " FROM " +
                               n.vote + " WHERE " + n.vote_user + " = ?1 AND ",
                           n.vote_item, " ORDER BY " + n.vote_item + d.grammar().for_update())),
      delete_of_user_(
          of_ids(delete_votes(n, d.grammar()) + n.vote_user + " = ?1 AND ", n.vote_item)),
      lock_items_("SELECT " + n.id + " FROM " + n.item + " WHERE " + n.id + " BETWEEN " +
                      item_id(options, d.grammar())(1) + " AND " +
                      item_id(options, d.grammar())(2) + " AND " + n.id + " IN (",
                  item_id(options, d.grammar()), 1, ", ",
                  ") ORDER BY " + n.id + d.grammar().for_no_key_update(), 2),
      uncount_items_(of_ids(
          "UPDATE " + n.item + " SET " + n.count + " = " +
              d.grammar().checked_sum(n.count, "COALESCE((SELECT -" + n.value + " FROM " + n.vote +
                                                   " WHERE " + n.vote_item + " = " + n.item + "." +
                                                   n.id + " AND " + n.vote_user + " = ?1), 0)") +
              " WHERE ",
          n.id, "", item_id(options, d.grammar()))),
      append_("INSERT INTO " + n.journal + " (item, diff) VALUES ", pair, 2, ", ", ""),
      add_to_cells_(
          "INSERT INTO " + n.cell + " (item, slot, n, ver) VALUES ",
          [](std::size_t first) {
              return "(" + placeholder(first) + ", 0, " + placeholder(first + 1) + ", 1)";
          },
          2, ", ",
          d.grammar().or_update("item, slot") +
              "n = " + d.grammar().checked_sum(n.cell + ".n", d.grammar().excluded("n")) +
              ", ver = " + n.cell + ".ver + 1"),
      of_users_(n, d.grammar(), item),
      anonymous_(n.anonymous(d.grammar()), d.grammar(), item),
      find_nobodys_("SELECT " + n.value + " FROM " + n.vote + " WHERE " + n.vote_item + " = " +
                    item + " AND " + n.vote_user + " IS NULL LIMIT ?2"),
      delete_nobodys_(d.delete_nobodys(n)),
      has_votes_("SELECT 1 FROM " + n.vote + " WHERE " + n.vote_item + " = " + item +
                 " UNION ALL SELECT 1 FROM " + n.anonymous_vote + " WHERE " + n.vote_item + " = " +
                 item + " LIMIT 1"),
      sum_("SELECT " + counted_sum(n, item)),
      hold_item_("SELECT 1 FROM " + n.item + " WHERE " + n.id + " = " + item +
                 d.grammar().for_no_key_update()),
      take_item_("SELECT 1 FROM " + n.item + " WHERE " + n.id + " = " + item +
                 d.grammar().for_update()),
      next_ver_("SELECT " +
                d.grammar().greater("COALESCE(MAX(ver), 0) + 1", d.grammar().now_microseconds()) +
                " FROM " + n.cell + " WHERE item = ?1"),
      delete_journal_("DELETE FROM " + n.journal + " WHERE item = ?1"),
      delete_cells_("DELETE FROM " + n.cell + " WHERE item = ?1"),
      clear_count_("UPDATE " + n.item + " SET " + n.count + " = 0 WHERE " + n.id + " = ?1"),
      recount_("UPDATE " + n.item + " SET " + n.count + " = " +
               counted_sum(n, n.item + "." + n.id) + " WHERE " + n.id + " = ?1"),
      delete_item_("DELETE FROM " + n.item + " WHERE " + n.id + " = ?1"),
      scan_of_user_(n, d.grammar(), "hc_s.voter = " + user),
      scan_retracted_(n, d.grammar(), retracted_before("hc_s.val", "hc_s.version")),
      lock_retracted_(
          of_keys(n, "SELECT 1 FROM " + n.vote + " WHERE " + retracted_before(n.value, n.version),
                  " ORDER BY " + n.vote_item + ", " + n.vote_user + d.grammar().for_update())),
      delete_retracted_(
          of_keys(n, delete_votes(n, d.grammar()) + retracted_before(n.value, n.version), "")) {}

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
    // The end first: rows that come between the two are looked at twice at most.
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

// (id, -value) of each vote that counts.
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

Result<std::vector<VoteRemoval::Nobodys>> VoteRemoval::delete_nobodys(sql::Connection& connection,
                                                                      const sql::Id& item,
                                                                      std::size_t limit) const {
    std::map<std::int64_t, std::int64_t> found;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        ++found[row.integer(0)];
        return {};
    };
    const sql::Value id = sql::to_value(item);
    HOTCOUNT_TRY(connection.query(find_nobodys_, {id, static_cast<std::int64_t>(limit)}, see));
    // Whichever rows these are: what is deleted is known by its value and number.
    std::vector<Nobodys> gone;
    for (const auto& [value, number] : found) {
        HOTCOUNT_TRY_ASSIGN(const std::int64_t deleted,
                            connection.execute(delete_nobodys_, {id, value, number}));
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
                                                bool there, Alone alone) const {
    std::int64_t ver = 0;
    const sql::RowVisitor see = [&](const sql::Row& row) -> Result<void> {
        ver = row.integer(0);
        return {};
    };
    const sql::Value id = sql::to_value(item);
    HOTCOUNT_TRY(connection.query(next_ver_, {id}, see));
    if (has_journal_) HOTCOUNT_TRY(connection.execute(delete_journal_, {id}));
    HOTCOUNT_TRY(connection.execute(delete_cells_, {id}));
    if (there && !options_.item_count.empty()) {
        HOTCOUNT_TRY(connection.execute(alone == Alone::taken ? clear_count_ : recount_, {id}));
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
