#include "sync_table.hpp"

#include <array>
#include <hotcount/detail/base/check.hpp>
#include <limits>
#include <tuple>

#include "sql/table_name.hpp"
#include "votes/tables/count_place.hpp"
#include "votes/tables/layout.hpp"
#include "votes/tables/numbered_reads.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
struct SyncTable::Names : VoteNames {
    Names(const VotesOptions& options, const sql::Grammar& grammar)
        : VoteNames(options, grammar),
          sync(sql::TableName::of(options.vote_table).beside("_sync").sql()),
          again(sql::TableName::of(options.vote_table).beside("_recount").sql()) {}
    std::string sync, again;
};

namespace {

template <class Names>
std::string schema_text(const Names& n, const sql::Grammar& g) {
    const std::string number = " " + g.type(sql::ColumnType::integer) + " NOT NULL";
    const std::string text = " " + g.type(sql::ColumnType::text);
    const std::string zero = number + " DEFAULT 0";
    return "CREATE TABLE IF NOT EXISTS " + n.sync + " (item " + n.item_type +
           " NOT NULL PRIMARY KEY, epoch" + zero + ", gen" + zero + ", saved_gen" + zero +
           ", saved_version" + zero + ", holder" + text + ", wide" + zero + ")" + g.table_end() +
           ";\n"
           "CREATE TABLE IF NOT EXISTS " +
           n.again + " (item " + n.item_type + " NOT NULL PRIMARY KEY, asked" + number + ")" +
           g.table_end() + ";\n";
}

// Without sums in decimals a part of the sum may leave 64 bits although the whole does not. So the
// upper and the lower halves of the numbers are summed apart.
std::string sum_of(const VoteNames& n, const sql::Grammar& g, const std::string& item) {
    if (g.sums_in_decimals()) return counted_sum(n, item);
    return counted_sum(n, item, Bits::upper) + ", " + counted_sum(n, item, Bits::lower);
}

// Such a sum, which stands in the columns from `first` on.
Result<std::int64_t> read_sum(const sql::Row& row, int first, bool in_halves, const sql::Id& item) {
    if (!row.is_integer(first)) return count_overflow(item);
    const std::int64_t high = row.integer(first);
    if (!in_halves) return high;
    const std::int64_t low = row.integer(first + 1);
    const auto carried = checked_add(high, low >> 32);
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    if (!carried || *carried > kMost || *carried < -kMost - 1) return count_overflow(item);
    return *carried * (std::int64_t{1} << 32) + (low & 0xffff'ffff);
}

}  // namespace

SyncTable::SyncTable(const VotesOptions& options, sql::Dialect dialect)
    : SyncTable(options, Names{options, dialect.grammar()}, vote_dialect(dialect)) {}

SyncTable::SyncTable(const VotesOptions& options, const Names& n, const VoteDialect& d)
    : SyncTable(options, n, d, d.grammar()) {}

SyncTable::SyncTable(const VotesOptions& options, const Names& n, const VoteDialect& d,
                     const sql::Grammar& g)
    : options_(options),
      grammar_(g),
      share_item_("SELECT 1 FROM " + n.item + " WHERE " + n.id + " = ?1" + g.for_share()),
      // Not FOR UPDATE on PostgreSQL, which also waits for those who have inserted a vote: two of
      // them would wait for each other.
      lock_item_("SELECT 1 FROM " + n.item + " WHERE " + n.id + " = ?1" + g.for_no_key_update()),
      read_state_(
          "SELECT COALESCE(s.epoch, 0), COALESCE(s.gen, 0), COALESCE(s.saved_gen, 0), "
          "COALESCE(s.saved_version, 0), COALESCE(i." +
          n.count + ", 0), COALESCE(s.holder, ''), COALESCE(s.wide, 0), i." + n.id + " FROM " +
          n.item + " AS i LEFT JOIN " + n.sync + " AS s ON s.item = i." + n.id + " WHERE i." +
          n.id + " = ?1"),
      sum_("SELECT " + sum_of(n, g, "?1")),
      read_stored_(std::make_unique<NumberedReads>(
          options, d,
          [n](const std::string& item, const std::string& number) {
              return "SELECT " + number + ", i." + n.id + ", " + n.own_count("i") +
                     ", COALESCE(s.epoch, 0) FROM " + n.item + " AS i LEFT JOIN " + n.sync +
                     " AS s ON s.item = i." + n.id + " WHERE i." + n.id + " = " + item;
          })),
      sums_(std::make_unique<NumberedReads>(
          options, d,
          [n, &g](const std::string& item, const std::string& number) {
              return "SELECT " + number + ", " + sum_of(n, g, item);
          })),
      set_wide_("INSERT INTO " + n.sync + " (item, wide) VALUES (?1, 1)" + g.or_update("item") +
                "wide = 1"),
      set_wide_openings_("INSERT INTO " + n.sync + " (item, wide) SELECT item, 1 FROM " + n.cell +
                         " WHERE slot = " + std::to_string(kOpeningSlot) +
                         " AND (n > 2147483648 OR n < -2147483648)" + g.or_update("item") +
                         "wide = 1"),
      fence_("INSERT INTO " + n.sync + " (item, gen, holder) VALUES (?1, 1, ?2)" +
             g.or_update("item") + "gen = " + g.own(n.sync, "gen") +
             " + 1, holder = " + g.excluded("holder")),
      save_count_("UPDATE " + n.item + " SET " + n.count + " = ?1 WHERE " + n.id + " = ?2"),
      save_marks_("UPDATE " + n.sync + " SET saved_gen = ?2, saved_version = ?3 WHERE item = ?1"),
      // The gen as well: saves of what was counted before are void.
      new_epoch_("INSERT INTO " + n.sync + " (item, epoch, gen) VALUES (?1, ?2, 1)" +
                 g.or_update("item") +
                 "epoch = " + g.greater(g.own(n.sync, "epoch") + " + 1", g.excluded("epoch")) +
                 ", gen = " + g.own(n.sync, "gen") + " + 1"),
      ask_("INSERT INTO " + n.again + " (item, asked) VALUES (?1, 1)" + g.or_update("item") +
           "asked = " + g.own(n.again, "asked") + " + 1"),
      ask_all_(std::make_unique<BulkStatement>(
          "INSERT INTO " + n.again + " (item, asked) VALUES ",
          [](std::size_t first) { return "(?" + std::to_string(first) + ", 1)"; }, 1, ", ",
          g.or_update("item") + "asked = " + g.own(n.again, "asked") + " + 1")),
      asked_("SELECT COALESCE(i." + n.id + ", r.item), r.asked, r.item FROM " + n.again +
             " AS r LEFT JOIN " + n.item + " AS i ON i." + n.id +
             " = r.item ORDER BY r.item LIMIT ?1"),
      settle_("DELETE FROM " + n.again + " WHERE item = ?1 AND asked = ?2"),
      forget_all_("DELETE FROM " + n.again),
      read_marks_("SELECT name, value FROM " + n.meta +
                  " WHERE name IN ('counted_in', 'cache_id')"),
      hold_marks_(read_marks_.text() + g.for_share()),
      write_id_("INSERT INTO " + n.meta + " (name, value) VALUES ('cache_id', ?1)" +
                g.or_update("name") + "value = " + g.excluded("value")) {}

std::string SyncTable::schema(const std::string& item_type) const {
    Names names{options_, grammar_};
    if (!item_type.empty()) names.item_type = item_type;
    return schema_text(names, grammar_);
}

Result<std::optional<SyncTable::State>> SyncTable::read(sql::Connection& connection,
                                                        const sql::Id& item, Hold hold) const {
    if (hold != Hold::none && grammar_.locks_rows()) {
        // A statement of its own: one that waited for a lock has read the rest before it waited.
        HOTCOUNT_TRY(connection.run(hold == Hold::shared ? share_item_ : lock_item_,
                                    std::array{sql::to_value(item)}, &sql::kIgnoreRows));
    }
    std::optional<State> state;
    const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
        state = State{row.integer(0), row.integer(1),           row.integer(2),      row.integer(3),
                      row.integer(4), std::string{row.text(5)}, row.integer(6) != 0, row.id(7)};
        return {};
    };
    HOTCOUNT_TRY(connection.query(read_state_, {sql::to_value(item)}, visit));
    return state;
}

Result<std::int64_t> SyncTable::sum(sql::Connection& connection, const sql::Id& item) const {
    std::int64_t sum = 0;
    const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
        HOTCOUNT_TRY_ASSIGN(sum, read_sum(row, 0, !grammar_.sums_in_decimals(), item));
        return {};
    };
    HOTCOUNT_TRY(connection.query(sum_, {sql::to_value(item)}, visit));
    return sum;
}

Result<std::vector<std::optional<SyncTable::Stored>>> SyncTable::read_stored(
    sql::Connection& connection, std::span<const sql::Id> items) const {
    std::vector<std::optional<Stored>> found(items.size());
    const auto visit = [&](std::size_t index, const sql::Row& row) -> Result<void> {
        found[index] = Stored{row.id(1), row.integer(2), row.integer(3)};
        return {};
    };
    HOTCOUNT_TRY(read_stored_->run(connection, items, visit));
    return found;
}

Result<std::vector<std::int64_t>> SyncTable::sums(sql::Connection& connection,
                                                  std::span<const sql::Id> items) const {
    std::vector<std::int64_t> found(items.size(), 0);
    const auto visit = [&](std::size_t index, const sql::Row& row) -> Result<void> {
        HOTCOUNT_TRY_ASSIGN(found[index],
                            read_sum(row, 1, !grammar_.sums_in_decimals(), items[index]));
        return {};
    };
    HOTCOUNT_TRY(sums_->run(connection, items, visit));
    return found;
}

Result<void> SyncTable::set_wide(sql::Connection& connection, const sql::Id& item) const {
    HOTCOUNT_TRY(connection.execute(set_wide_, {sql::to_value(item)}));
    return {};
}

Result<std::optional<SyncTable::State>> SyncTable::fence(sql::Connection& connection,
                                                         const sql::Id& item,
                                                         const std::string& holder) const {
    HOTCOUNT_TRY_ASSIGN(const std::optional<State> before, read(connection, item, Hold::alone));
    if (!before) return std::optional<State>{};
    HOTCOUNT_TRY(
        connection.execute(fence_, {sql::to_value(item), sql::Value{std::string_view{holder}}}));
    if (!before->holder.empty() && before->holder != holder) {
        HOTCOUNT_TRY(ask_recount(connection, item));
    }
    return read(connection, item);
}

Result<SaveState> SyncTable::save(sql::Connection& connection, const sql::Id& item,
                                  const CacheEntry& entry) const {
    HOTCOUNT_TRY_ASSIGN(const std::optional<State> state, read(connection, item, Hold::alone));
    if (!state) return SaveState::gone;
    if (entry.epoch < state->epoch) return SaveState::outdated;
    // The cache knows of what SQL does not: SQL is an older copy.
    if (entry.epoch > state->epoch || entry.gen > state->gen) return SaveState::doubtful;
    if (entry.gen < state->gen) return SaveState::fenced;
    if (entry.gen == state->saved_gen && entry.version <= state->saved_version) {
        if (entry.version < state->saved_version) return SaveState::behind;
        return entry.value == state->stored ? SaveState::saved : SaveState::doubtful;
    }
    HOTCOUNT_TRY(connection.execute(save_count_, {entry.value, sql::to_value(item)}));
    HOTCOUNT_TRY(connection.execute(save_marks_, {sql::to_value(item), entry.gen, entry.version}));
    return SaveState::saved;
}

Result<std::int64_t> SyncTable::recount(sql::Connection& connection, const sql::Id& item,
                                        std::int64_t above) const {
    // Alone before the sum: a vote is in it, or reads the new epoch.
    HOTCOUNT_TRY(read(connection, item, Hold::alone));
    HOTCOUNT_TRY_ASSIGN(const std::int64_t votes, sum(connection, item));
    HOTCOUNT_TRY(connection.execute(save_count_, {votes, sql::to_value(item)}));
    HOTCOUNT_TRY(connection.execute(new_epoch_, {sql::to_value(item), above + 1}));
    HOTCOUNT_TRY_ASSIGN(const std::optional<State> state, read(connection, item));
    return state ? state->epoch : above + 1;
}

Result<void> SyncTable::ask_recount(sql::Connection& connection, const sql::Id& item) const {
    HOTCOUNT_TRY(connection.execute(ask_, {sql::to_value(item)}));
    return {};
}

Result<void> SyncTable::ask_recounts(sql::Connection& connection,
                                     std::span<const sql::Id> items) const {
    std::vector<sql::Value> values;
    while (!items.empty()) {
        const auto part = items.first(BulkStatement::portion(items.size()));
        items = items.subspan(part.size());
        values.clear();
        for (const sql::Id& item : part) values.push_back(sql::to_value(item));
        auto asked = connection.run(ask_all_->of(part.size()), values, nullptr);
        if (!asked) return std::move(asked).error();
    }
    return {};
}

Result<std::vector<SyncTable::Request>> SyncTable::recounts(sql::Connection& connection,
                                                            std::size_t limit) const {
    std::vector<Request> requests;
    const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
        requests.push_back(Request{row.id(0), row.integer(1), row.id(2)});
        return {};
    };
    HOTCOUNT_TRY(connection.query(asked_, {static_cast<std::int64_t>(limit)}, visit));
    return requests;
}

Result<void> SyncTable::settle(sql::Connection& connection, const Request& request) const {
    HOTCOUNT_TRY(connection.execute(settle_, {sql::to_value(request.asked_for), request.asked}));
    return {};
}

Result<std::string> SyncTable::cache_id(sql::Connection& connection, bool hold) const {
    std::string place;
    std::string id;
    const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
        (row.text(0) == "cache_id" ? id : place) = row.text(1);
        return {};
    };
    if (auto found = connection.query(hold ? hold_marks_ : read_marks_, {}, visit); !found) {
        return explain_missing_table(std::move(found).error());
    }
    if (place != to_string(CountPlace::cache) || id.empty()) {
        return wrong_place(options_, place, grammar_.dialect());
    }
    return id;
}

Result<void> SyncTable::renew(sql::Connection& connection) const {
    const std::string id = random_name().substr(0, 16);
    HOTCOUNT_TRY(connection.execute(write_id_, {std::string_view{id}}));
    HOTCOUNT_TRY(connection.execute(forget_all_));
    HOTCOUNT_TRY(connection.execute(set_wide_openings_));
    return {};
}

}  // namespace hotcount
