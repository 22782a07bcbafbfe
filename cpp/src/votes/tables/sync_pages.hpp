// The statements of strategy cached over a page of items: one or two for a page instead of one for
// each item. A dialect whose statements cost no round trip has none of this.
//
// Every function but fence() and save_at_once() runs inside the caller's transaction. Ids are given once each, at most
// kMost of them. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/sql.hpp>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "layout.hpp"

namespace hotcount {

/// An item's row, and its row of vote_sync (votes/cache/sync_table.hpp).
struct SyncState {
    std::int64_t epoch;
    std::int64_t gen;
    std::int64_t saved_gen;
    std::int64_t saved_version;
    std::int64_t stored;  ///< item.vote_count
    std::string holder;
    bool wide;
    /// As its row has it: to a column that compares without case, "a" and "A" are one item, and
    /// to a cache two. The cache knows it by this one.
    sql::Id item;
};
/// {state_columns} and {state_tables} of votes/sql/parts.sql. In layout.cpp.
std::string sync_columns(const VoteNames& names);
std::string sync_tables(const VoteNames& names);
/// Reads a row whose columns from `first` on are {state_columns}.
inline SyncState read_sync_state(const sql::Row& row, int first) {
    return {row.integer(first),          row.integer(first + 1), row.integer(first + 2),
            row.integer(first + 3),      row.integer(first + 4), std::string{row.text(first + 5)},
            row.integer(first + 6) != 0, row.id(first + 7)};
}

/// The state that a fill reads as it raises the gen.
struct SyncFence {
    sql::Id item;  ///< As its row has it.
    std::int64_t gen;
    std::int64_t epoch;
    std::int64_t stored;  ///< item.vote_count
};

class SyncPages {
  public:
    /// One statement's items.
    static constexpr std::size_t kMost = 1024;

    virtual ~SyncPages() = default;

    /// Whether ids that differ are different items. If not, all goes item by item.
    virtual Result<bool> tells_ids_apart(sql::Connection& connection) = 0;
    /// By index; nullopt for an item without a row. `alone` locks the items first, in the order of
    /// their ids, so that the states stay true until the transaction ends.
    virtual Result<std::vector<std::optional<SyncState>>> read(sql::Connection& connection,
                                                               std::span<const sql::Id> items,
                                                               bool alone) = 0;
    /// Whether there is fence(); asked in a transaction that has begun.
    virtual Result<bool> fences_at_once(sql::Connection& connection) = 0;
    /// SyncTable::fence_all() in one trip, which commits by itself. It locks vote_sync's rows, and
    /// does not block voters. By index; monostate for an item without a row, and if the tables
    /// count under another id than `space`. Again: a save or recount came in between, and the state
    /// may be older; the gen is raised all the same.
    struct Again {};
    using Fenced = std::variant<std::monostate, Again, SyncFence>;
    virtual Result<std::vector<Fenced>> fence(sql::Connection& connection,
                                              std::span<const sql::Id> items,
                                              const std::string& holder, const std::string& space,
                                              Deadline deadline) = 0;
    struct Save {
        sql::Id item;
        std::int64_t count;
        std::int64_t gen;
        std::int64_t version;
        std::int64_t epoch{0};
    };
    /// The most saves that save_at_once() takes: it locks their items as long as it runs, without a
    /// round trip in between. 0: there is no save_at_once().
    virtual std::size_t saves_at_once() const { return 0; }
    /// SyncTable::save_all() in one statement, which commits by itself. Returns the states that it
    /// found, by index. It writes the saves that have the state's epoch and gen and a higher
    /// version. Items that other transactions hold are skipped, unless it `waits`.
    struct Found {
        std::optional<SyncState> state{};
        bool held{false};
    };
    virtual Result<std::vector<Found>> save_at_once(sql::Connection& connection,
                                                    std::span<const Save> saves, bool waits,
                                                    const std::string& space, Deadline deadline) {
        (void)connection, (void)saves, (void)waits, (void)space, (void)deadline;
        return make_error(ErrorCode::database, "this dialect saves in a transaction");
    }
    /// Where there is no save_at_once(): writes item.vote_count, and in vote_sync the gen and version
    /// that it is of.
    virtual Result<void> save(sql::Connection& connection, std::span<const Save> saves) {
        (void)connection, (void)saves;
        return make_error(ErrorCode::database, "this dialect saves in one statement");
    }
    /// Writes item.vote_count alone.
    virtual Result<void> set_counts(sql::Connection& connection, std::span<const Save> counts) = 0;
    /// Sums of the items' votes and opening balances, by index, for items that have rows. nullopt:
    /// the sum exceeds 64 bits.
    virtual Result<std::vector<std::optional<std::int64_t>>> sums(
        sql::Connection& connection, std::span<const sql::Id> items) = 0;
};

}  // namespace hotcount
