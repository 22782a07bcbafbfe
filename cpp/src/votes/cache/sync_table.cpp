#include "sync_table.hpp"

#include <algorithm>
#include <array>
#include <hotcount/detail/base/check.hpp>
#include <iterator>
#include <limits>

#include "hotcount_embedded/votes/sql.hpp"
#include "votes/tables/bulk_statement.hpp"
#include "votes/tables/count_place.hpp"
#include "votes/tables/layout.hpp"
#include "votes/tables/vote_dialect.hpp"

namespace hotcount {
namespace {

sql::Statements sync_statements(const VoteNames& n, const sql::Grammar& g) {
    return vote_statements(vote_sql::kSyncSql, n, g,
                           {{"in_halves", sql::flag(!g.sums_in_decimals())}});
}

// Reads the sum of an item: column `first` or, in halves, also the next one.
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
    : SyncTable(options, VoteNames{options, dialect.grammar()}, vote_dialect(dialect),
                sync_statements(VoteNames{options, dialect.grammar()}, dialect.grammar())) {}

SyncTable::SyncTable(const VotesOptions& options, const VoteNames& n, const VoteDialect& d,
                     const sql::Statements& sql)
    : options_(options),
      grammar_(d.grammar()),
      share_item_(sql["share_item"]),
      lock_item_(sql["lock_item"]),
      lock_marks_(sql["lock_marks"]),
      read_state_(sql["read_state"]),
      sum_(sql["sum_of_item"]),
      read_stored_(std::make_unique<NumberedReads>(options, d, sql, "stored")),
      sums_(std::make_unique<NumberedReads>(options, d, sql, "numbered_sum")),
      set_wide_(sql["set_wide"]),
      set_wide_openings_(sql["set_wide_openings"]),
      fence_(std::make_unique<BulkStatement>(sql["fence"])),
      save_count_(sql["save_count"]),
      save_marks_(sql["save_marks"]),
      unsaved_(sql["unsaved"]),
      new_epoch_(std::make_unique<BulkStatement>(sql["new_epoch"])),
      ask_(std::make_unique<BulkStatement>(sql["ask"])),
      asked_(sql["asked"]),
      settle_(std::make_unique<BulkStatement>(sql["settle"])),
      take_back_(sql["take_back"]),
      forget_all_(sql["forget_all"]),
      read_marks_(sql["read_marks"]),
      hold_marks_(sql["hold_marks"]),
      write_id_(sql["write_id"]),
      pages_(d.sync_pages(options, n)) {}

std::string SyncTable::schema(const std::string& item_type) const {
    VoteNames names{options_, grammar_};
    if (!item_type.empty()) names.item_type = item_type;
    return sync_statements(names, grammar_)["schema"];
}

Result<std::optional<SyncTable::State>> SyncTable::read(sql::Connection& connection,
                                                        const sql::Id& item, Hold hold) const {
    if (hold != Hold::none && grammar_.locks_rows()) {
        // The lock has a statement of its own: one that waits for a lock would return what it read
        // before.
        HOTCOUNT_TRY(connection.run(hold == Hold::shared ? share_item_ : lock_item_,
                                    std::array{sql::to_value(item)}, &sql::kIgnoreRows));
        if (hold == Hold::to_save) {
            HOTCOUNT_TRY(
                connection.run(lock_marks_, std::array{sql::to_value(item)}, &sql::kIgnoreRows));
        }
    }
    std::optional<State> state;
    const sql::RowVisitor visit = [&](const sql::Row& row) -> Result<void> {
        state = read_sync_state(row, 0);
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

namespace {

// Runs the statement over all rows, as many at a time as it takes. Each row is `columns` of
// `values`; `head` comes before the rows of each run.
Result<void> run_all(sql::Connection& connection, BulkStatement& statement,
                     std::span<const sql::Value> values, std::size_t columns,
                     std::span<const sql::Value> head = {}) {
    std::vector<sql::Value> now;
    while (!values.empty()) {
        const std::size_t rows = BulkStatement::portion(values.size() / columns);
        now.assign(head.begin(), head.end());
        now.insert(now.end(), values.begin(),
                   values.begin() + static_cast<std::ptrdiff_t>(rows * columns));
        values = values.subspan(rows * columns);
        auto done = connection.run(statement.of(rows), now, nullptr);
        if (!done) return std::move(done).error();
    }
    return {};
}

}  // namespace

Result<bool> SyncTable::uses_pages(sql::Connection& connection, std::vector<sql::Id> items) const {
    if (pages_ == nullptr || items.size() < 2) return false;
    std::sort(items.begin(), items.end());
    if (std::adjacent_find(items.begin(), items.end()) != items.end()) return false;
    return pages_->tells_ids_apart(connection);
}

Result<std::vector<std::optional<SyncTable::State>>> SyncTable::read_pages(
    sql::Connection& connection, std::span<const sql::Id> items, bool alone) const {
    std::vector<std::optional<State>> states;
    states.reserve(items.size());
    for (std::size_t first = 0; first < items.size(); first += SyncPages::kMost) {
        const auto part = items.subspan(first, std::min(SyncPages::kMost, items.size() - first));
        HOTCOUNT_TRY_ASSIGN(auto found, pages_->read(connection, part, alone));
        std::move(found.begin(), found.end(), std::back_inserter(states));
    }
    return states;
}

Result<std::vector<std::optional<SyncTable::State>>> SyncTable::read_all(
    sql::Connection& connection, std::span<const sql::Id> items) const {
    HOTCOUNT_TRY_ASSIGN(const bool paged, uses_pages(connection, {items.begin(), items.end()}));
    if (paged) return read_pages(connection, items, false);
    std::vector<std::optional<State>> states;
    states.reserve(items.size());
    for (const sql::Id& item : items) {
        HOTCOUNT_TRY_ASSIGN(auto state, read(connection, item));
        states.push_back(std::move(state));
    }
    return states;
}

Result<std::optional<SyncTable::State>> SyncTable::fence(sql::Connection& connection,
                                                         const sql::Id& item,
                                                         const std::string& holder) const {
    HOTCOUNT_TRY_ASSIGN(const std::optional<State> before, read(connection, item, Hold::to_save));
    if (!before) return before;
    const std::array<sql::Value, 2> values{std::string_view{holder}, sql::to_value(item)};
    HOTCOUNT_TRY(connection.run(fence_->of(1), values, nullptr));
    // Read again: a missing row could not be locked, and another transaction may have inserted it.
    HOTCOUNT_TRY_ASSIGN(std::optional<State> state, read(connection, item));
    if (state &&
        ((!before->holder.empty() && before->holder != holder) || state->gen != before->gen + 1)) {
        HOTCOUNT_TRY(ask_recounts(connection, {&item, 1}));
    }
    return state;
}

Result<std::vector<std::optional<SyncTable::State>>> SyncTable::fence_all(
    sql::Connection& connection, std::span<const sql::Id> items, const std::string& holder) const {
    std::vector<std::optional<State>> states;
    HOTCOUNT_TRY_ASSIGN(const bool paged, uses_pages(connection, {items.begin(), items.end()}));
    if (!paged) {
        for (const sql::Id& item : items) {
            HOTCOUNT_TRY_ASSIGN(auto state, fence(connection, item, holder));
            states.push_back(std::move(state));
        }
        return states;
    }
    // A dialect with pages and without fence_at_once() takes all fences here, under locks of the
    // items.
    HOTCOUNT_TRY_ASSIGN(states, read_pages(connection, items, true));
    std::vector<sql::Value> values;
    std::vector<sql::Id> of_others;
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (!states[i]) continue;
        State& state = *states[i];
        values.push_back(sql::to_value(items[i]));
        if (!state.holder.empty() && state.holder != holder) of_others.push_back(items[i]);
        ++state.gen;
        state.holder = holder;
    }
    const std::array<sql::Value, 1> head{std::string_view{holder}};
    HOTCOUNT_TRY(run_all(connection, *fence_, values, 1, head));
    HOTCOUNT_TRY(ask_recounts(connection, of_others));
    return states;
}

Result<std::optional<std::vector<SyncPages::Fenced>>> SyncTable::fence_at_once(
    sql::Connection& connection, std::span<const sql::Id> items, const std::string& holder,
    const std::string& space, Deadline deadline) const {
    std::optional<std::vector<SyncPages::Fenced>> fenced;
    if (pages_ == nullptr || items.size() > SyncPages::kMost) return fenced;
    HOTCOUNT_TRY_ASSIGN(const bool at_once, pages_->fences_at_once(connection));
    if (at_once) {
        HOTCOUNT_TRY_ASSIGN(fenced, pages_->fence(connection, items, holder, space, deadline));
    }
    return fenced;
}

std::optional<SaveState> SyncTable::outcome_unwritten(const std::optional<State>& state,
                                                      const CacheEntry& entry) {
    if (!state) return SaveState::gone;
    if (entry.epoch < state->epoch) return SaveState::outdated;
    // The cache has an epoch or gen that SQL does not: SQL is an older copy.
    if (entry.epoch > state->epoch || entry.gen > state->gen) return SaveState::doubtful;
    if (entry.gen < state->gen) return SaveState::fenced;
    if (entry.gen == state->saved_gen && entry.version <= state->saved_version) {
        if (entry.version < state->saved_version) return SaveState::behind;
        return entry.value == state->stored ? SaveState::saved : SaveState::doubtful;
    }
    return std::nullopt;
}

Result<SaveState> SyncTable::save(sql::Connection& connection, const sql::Id& item,
                                  const CacheEntry& entry) const {
    HOTCOUNT_TRY_ASSIGN(const std::optional<State> state, read(connection, item, Hold::to_save));
    if (const auto outcome = outcome_unwritten(state, entry)) return *outcome;
    HOTCOUNT_TRY(connection.execute(save_count_, {entry.value, sql::to_value(item)}));
    HOTCOUNT_TRY(connection.execute(save_marks_, {sql::to_value(item), entry.gen, entry.version}));
    return SaveState::saved;
}

Result<std::vector<SaveState>> SyncTable::save_all(sql::Connection& connection,
                                                   std::span<const ToSave> saves) const {
    std::vector<sql::Id> items;
    items.reserve(saves.size());
    for (const ToSave& each : saves) items.push_back(each.item);
    std::vector<SaveState> results;
    results.reserve(saves.size());
    HOTCOUNT_TRY_ASSIGN(const bool paged, uses_pages(connection, items));
    if (!paged) {
        for (const ToSave& each : saves) {
            HOTCOUNT_TRY_ASSIGN(const SaveState state, save(connection, each.item, *each.entry));
            results.push_back(state);
        }
        return results;
    }
    HOTCOUNT_TRY_ASSIGN(const auto states, read_pages(connection, items, true));
    std::vector<SyncPages::Save> writes;
    for (std::size_t i = 0; i < saves.size(); ++i) {
        const CacheEntry& entry = *saves[i].entry;
        const auto outcome = outcome_unwritten(states[i], entry);
        results.push_back(outcome.value_or(SaveState::saved));
        if (outcome) continue;
        writes.push_back({saves[i].item, entry.value, entry.gen, entry.version});
    }
    for (std::span<const SyncPages::Save> left{writes}; !left.empty();) {
        const auto part = left.first(std::min(SyncPages::kMost, left.size()));
        left = left.subspan(part.size());
        HOTCOUNT_TRY(pages_->save(connection, part));
    }
    return results;
}

std::size_t SyncTable::saves_at_once() const {
    return pages_ == nullptr ? 0 : pages_->saves_at_once();
}

Result<std::vector<SaveState>> SyncTable::save_at_once(sql::Connection& connection,
                                                       std::span<const ToSave> saves, bool waits,
                                                       const std::string& space,
                                                       Deadline deadline) const {
    std::vector<SyncPages::Save> writes;
    writes.reserve(saves.size());
    for (const auto& [item, entry] : saves) {
        writes.push_back({item, entry->value, entry->gen, entry->version, entry->epoch});
    }
    HOTCOUNT_TRY_ASSIGN(const auto found,
                        pages_->save_at_once(connection, writes, waits, space, deadline));
    std::vector<SaveState> results;
    results.reserve(saves.size());
    for (std::size_t i = 0; i < saves.size(); ++i) {
        const auto outcome = outcome_unwritten(found[i].state, *saves[i].entry);
        results.push_back(found[i].held ? SaveState::held : outcome.value_or(SaveState::saved));
    }
    return results;
}

Result<void> SyncTable::visit_unsaved(sql::Connection& connection,
                                      const std::function<void(sql::Id)>& visit) const {
    const sql::RowVisitor each = [&](const sql::Row& row) -> Result<void> {
        visit(row.id(0));
        return {};
    };
    HOTCOUNT_TRY(connection.query(unsaved_, {}, each));
    return {};
}

Result<std::int64_t> SyncTable::recount(sql::Connection& connection, const sql::Id& item,
                                        std::int64_t above) const {
    // The lock comes before the sum: each vote is in the sum, or reads the new epoch.
    HOTCOUNT_TRY(read(connection, item, Hold::alone));
    HOTCOUNT_TRY_ASSIGN(const std::int64_t votes, sum(connection, item));
    HOTCOUNT_TRY(connection.execute(save_count_, {votes, sql::to_value(item)}));
    const std::array<sql::Value, 2> values{sql::to_value(item), above + 1};
    HOTCOUNT_TRY(connection.run(new_epoch_->of(1), values, nullptr));
    HOTCOUNT_TRY_ASSIGN(const std::optional<State> state, read(connection, item));
    return state ? state->epoch : above + 1;
}

Result<std::vector<std::optional<std::int64_t>>> SyncTable::recount_all(
    sql::Connection& connection, std::span<const ToRecount> recounts) const {
    std::vector<std::optional<std::int64_t>> epochs(recounts.size());
    const auto recount_one = [&](std::size_t index) -> Result<void> {
        auto epoch = recount(connection, recounts[index].item, recounts[index].above);
        if (epoch) {
            epochs[index] = *epoch;
        } else if (epoch.error().code != ErrorCode::overflow) {
            return std::move(epoch).error();
        }
        return {};
    };
    std::vector<sql::Id> items;
    items.reserve(recounts.size());
    for (const ToRecount& each : recounts) items.push_back(each.item);
    HOTCOUNT_TRY_ASSIGN(const bool paged, uses_pages(connection, items));
    if (!paged) {
        for (std::size_t i = 0; i < recounts.size(); ++i) HOTCOUNT_TRY(recount_one(i));
        return epochs;
    }
    // The locks come before the sums, as in recount().
    HOTCOUNT_TRY_ASSIGN(const auto states, read_pages(connection, items, true));
    for (std::size_t first = 0; first < items.size(); first += SyncPages::kMost) {
        const std::size_t size = std::min(SyncPages::kMost, items.size() - first);
        HOTCOUNT_TRY_ASSIGN(const auto sums,
                            pages_->sums(connection, std::span{items}.subspan(first, size)));
        std::vector<SyncPages::Save> counts;
        std::vector<sql::Value> values;
        for (std::size_t i = first; i < first + size; ++i) {
            const auto& votes = sums[i - first];
            if (!states[i] || !votes) continue;
            const std::int64_t above = recounts[i].above + 1;
            epochs[i] = std::max(states[i]->epoch + 1, above);
            counts.push_back({items[i], *votes, 0, 0});
            values.push_back(sql::to_value(items[i]));
            values.emplace_back(above);
        }
        if (counts.empty()) continue;
        HOTCOUNT_TRY(pages_->set_counts(connection, counts));
        HOTCOUNT_TRY(run_all(connection, *new_epoch_, values, 2));
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (!states[i]) HOTCOUNT_TRY(recount_one(i));
    }
    return epochs;
}

Result<void> SyncTable::ask_recounts(sql::Connection& connection,
                                     std::span<const sql::Id> items) const {
    std::vector<sql::Value> values;
    values.reserve(items.size());
    for (const sql::Id& item : items) values.push_back(sql::to_value(item));
    return run_all(connection, *ask_, values, 1);
}

Result<void> SyncTable::take_back_asks(sql::Connection& connection, const sql::Id& item,
                                       std::int64_t asks) const {
    const std::array<sql::Value, 2> values{sql::to_value(item), asks};
    HOTCOUNT_TRY_ASSIGN(const std::int64_t gone, connection.run(settle_->of(1), values, nullptr));
    if (gone == 0) HOTCOUNT_TRY(connection.run(take_back_, values, nullptr));
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

Result<void> SyncTable::settle(sql::Connection& connection,
                               std::span<const Request> requests) const {
    std::vector<sql::Value> values;
    for (const Request& request : requests) {
        values.push_back(sql::to_value(request.asked_for));
        values.emplace_back(request.asked);
    }
    return run_all(connection, *settle_, values, 2);
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
