#include "sync_table.hpp"

#include <hotcount/base/check.hpp>
#include <limits>
#include <tuple>

#include "layout.hpp"
#include "sql_votes.hpp"

namespace hotcount {

struct SyncTable::Names {
    explicit Names(const VotesOptions& options)
        : item(sql::quote_identifier(options.item_table)),
          id(sql::quote_identifier(options.item_id)),
          count(sql::quote_identifier(options.item_count)),
          vote(sql::quote_identifier(options.vote_table)),
          vote_item(sql::quote_identifier(options.vote_item)),
          sync(sql::quote_identifier(options.vote_table + "_sync")),
          again(sql::quote_identifier(options.vote_table + "_recount")),
          meta(sql::quote_identifier(options.vote_table + "_meta")),
          item_type(options.item_type == IdType::integer ? "INTEGER" : "TEXT") {}
    std::string item, id, count, vote, vote_item, sync, again, meta, item_type;
};

SyncTable::SyncTable(const VotesOptions& options) : SyncTable(options, Names{options}) {}

SyncTable::SyncTable(const VotesOptions& options, const Names& n)
    : vote_table_(options.vote_table),
      read_state_(
          "SELECT COALESCE(s.epoch, 0), COALESCE(s.gen, 0), COALESCE(s.saved_gen, 0), "
          "COALESCE(s.saved_version, 0), COALESCE(i." +
          n.count + ", 0), COALESCE(s.holder, ''), COALESCE(s.wide, 0) FROM " + n.item +
          " AS i LEFT JOIN " + n.sync + " AS s ON s.item = i." + n.id + " WHERE i." + n.id +
          " = ?1"),
      // In halves, because SUM fails where a part of the sum leaves 64 bits, though the whole
      // would not.
      sum_("SELECT COALESCE(SUM(val >> 32), 0), COALESCE(SUM(val & 4294967295), 0) FROM " + n.vote +
           " WHERE " + n.vote_item + " = ?1"),
      set_wide_("INSERT INTO " + n.sync +
                " (item, wide) VALUES (?1, 1) ON CONFLICT (item) DO UPDATE SET wide = 1"),
      fence_("INSERT INTO " + n.sync +
             " (item, gen, holder) VALUES (?1, 1, ?2) ON CONFLICT (item) DO UPDATE SET gen = gen + "
             "1, holder = excluded.holder"),
      save_count_("UPDATE " + n.item + " SET " + n.count + " = ?1 WHERE " + n.id + " = ?2"),
      save_marks_("UPDATE " + n.sync + " SET saved_gen = ?2, saved_version = ?3 WHERE item = ?1"),
      // The gen as well: saves of what was counted before are void.
      new_epoch_("INSERT INTO " + n.sync +
                 " (item, epoch, gen) VALUES (?1, ?2 + 1, 1) ON CONFLICT (item) DO UPDATE SET "
                 "epoch = MAX(epoch, ?2) + 1, gen = gen + 1"),
      ask_("INSERT INTO " + n.again +
           " (item, asked) VALUES (?1, 1) ON CONFLICT (item) DO UPDATE SET asked = asked + 1"),
      asked_("SELECT item, asked FROM " + n.again + " ORDER BY item LIMIT ?1"),
      settle_("DELETE FROM " + n.again + " WHERE item = ?1 AND asked = ?2"),
      forget_all_("DELETE FROM " + n.again),
      read_marks_("SELECT name, value FROM " + n.meta +
                  " WHERE name IN ('counted_in', 'cache_id')"),
      write_id_("INSERT INTO " + n.meta +
                " (name, value) VALUES ('cache_id', ?1) ON CONFLICT (name) DO UPDATE SET value = "
                "excluded.value"),
      schema_("CREATE TABLE IF NOT EXISTS " + n.sync + " (item " + n.item_type +
              " PRIMARY KEY NOT NULL, epoch INTEGER NOT NULL DEFAULT 0, gen INTEGER NOT NULL "
              "DEFAULT 0, saved_gen INTEGER NOT NULL DEFAULT 0, saved_version INTEGER NOT NULL "
              "DEFAULT 0, holder TEXT, wide INTEGER NOT NULL DEFAULT 0) WITHOUT ROWID;\n"
              "CREATE TABLE IF NOT EXISTS " +
              n.again + " (item " + n.item_type +
              " PRIMARY KEY NOT NULL, asked INTEGER NOT NULL) WITHOUT ROWID;\n") {}

Result<std::optional<SyncTable::State>> SyncTable::read(sql::Connection& connection,
                                                        const sql::Id& item) const {
    std::optional<State> state;
    const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
        state = State{row.integer(0), row.integer(1),           row.integer(2),     row.integer(3),
                      row.integer(4), std::string{row.text(5)}, row.integer(6) != 0};
        return {};
    };
    HOTCOUNT_TRY(connection.query(read_state_, {sql::to_value(item)}, visit));
    return state;
}

Result<std::int64_t> SyncTable::sum(sql::Connection& connection, const sql::Id& item) const {
    std::int64_t high = 0;
    std::int64_t low = 0;
    const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
        high = row.integer(0);
        low = row.integer(1);
        return {};
    };
    HOTCOUNT_TRY(connection.query(sum_, {sql::to_value(item)}, visit));
    const auto carried = checked_add(high, low >> 32);
    constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
    if (!carried || *carried > kMost || *carried < -kMost - 1) return count_overflow(item);
    return *carried * (std::int64_t{1} << 32) + (low & 0xffff'ffff);
}

Result<void> SyncTable::set_wide(sql::Connection& connection, const sql::Id& item) const {
    HOTCOUNT_TRY(connection.execute(set_wide_, {sql::to_value(item)}));
    return {};
}

Result<std::optional<SyncTable::State>> SyncTable::fence(sql::Connection& connection,
                                                         const sql::Id& item,
                                                         const std::string& holder) const {
    HOTCOUNT_TRY_ASSIGN(const std::optional<State> before, read(connection, item));
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
    HOTCOUNT_TRY_ASSIGN(const std::optional<State> state, read(connection, item));
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
    HOTCOUNT_TRY_ASSIGN(const std::int64_t votes, sum(connection, item));
    HOTCOUNT_TRY(connection.execute(save_count_, {votes, sql::to_value(item)}));
    HOTCOUNT_TRY(connection.execute(new_epoch_, {sql::to_value(item), above}));
    HOTCOUNT_TRY_ASSIGN(const std::optional<State> state, read(connection, item));
    return state ? state->epoch : above + 1;
}

Result<void> SyncTable::ask_recount(sql::Connection& connection, const sql::Id& item) const {
    HOTCOUNT_TRY(connection.execute(ask_, {sql::to_value(item)}));
    return {};
}

Result<std::vector<SyncTable::Request>> SyncTable::recounts(sql::Connection& connection,
                                                            std::size_t limit) const {
    std::vector<Request> requests;
    const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
        requests.push_back(Request{row.id(0), row.integer(1)});
        return {};
    };
    HOTCOUNT_TRY(connection.query(asked_, {static_cast<std::int64_t>(limit)}, visit));
    return requests;
}

Result<void> SyncTable::settle(sql::Connection& connection, const Request& request) const {
    HOTCOUNT_TRY(connection.execute(settle_, {sql::to_value(request.item), request.asked}));
    return {};
}

Result<std::string> SyncTable::cache_id(sql::Connection& connection) const {
    std::string place;
    std::string id;
    const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
        (row.text(0) == "cache_id" ? id : place) = row.text(1);
        return {};
    };
    if (auto found = connection.query(read_marks_, {}, visit); !found) {
        return explain_missing_table(std::move(found).error());
    }
    if (place != to_string(CountPlace::cache) || id.empty()) {
        return wrong_place(vote_table_, place, VoteStrategy::cached);
    }
    return id;
}

Result<void> SyncTable::renew(sql::Connection& connection) const {
    const std::string id = random_name().substr(0, 16);
    HOTCOUNT_TRY(connection.execute(write_id_, {std::string_view{id}}));
    HOTCOUNT_TRY(connection.execute(forget_all_));
    return {};
}

}  // namespace hotcount
