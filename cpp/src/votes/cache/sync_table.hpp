// The state that strategy cached keeps in SQL beside the votes:
//
//   vote_sync (item, epoch, gen, saved_gen, saved_version, holder, wide)
//     epoch          raised by each recount; a vote's transaction reads it, so that a count knows
//                    whether the recount has that vote already
//     gen            the fencing number: raised by each fill; only a save with this very gen is taken
//     saved_gen, saved_version   of the save that item.vote_count comes from
//     holder         the cache that the last fill was for
//     wide           a vote of more than 32 bits was cast, or the opening balance is one: the sum is
//                    checked with each vote
//   vote_recount (item, asked)   items whose count is in doubt, for a worker
//   vote_meta: cache_id          the name under which these tables count in a cache
//
// Every function runs inside the caller's transaction. A function over many items takes one to
// three statements for each 1,024 of them, where the dialect has SyncPages, and goes item by item
// elsewhere.
#pragma once

#include <functional>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "count_cache.hpp"
#include "sql/dialect.hpp"
#include "votes/tables/bulk_statement.hpp"
#include "votes/tables/sync_pages.hpp"

namespace hotcount {

/// The outcome of a save.
enum class SaveState : std::uint8_t {
    saved,     ///< item.vote_count has it: written now, or by another before.
    behind,    ///< A later version of it is saved.
    fenced,    ///< A fill has raised the gen since: the hash needs it, too.
    outdated,  ///< A recount has begun another epoch: the hash is void.
    doubtful,  ///< SQL or the cache has lost something: recount.
    gone,      ///< The item's row is not there.
    held,      ///< Another transaction holds the item's row.
    refused,   ///< The database refuses it for itself.
};

class SyncTable {
  public:
    SyncTable(const VotesOptions& options, sql::Dialect dialect);

    /// `item_type`: of columns that hold an item's id; empty for that of the options.
    std::string schema(const std::string& item_type = {}) const;

    using State = SyncState;
    /// The lock that keeps the state until the transaction ends. Transactions that vote share the
    /// item's row; transactions that change the state lock it exclusively. So a recount waits for
    /// the votes under way, and a vote that comes after it reads the new epoch. `to_save` locks the
    /// row of vote_sync as well: it blocks fences, which do not lock the items.
    enum class Hold : std::uint8_t { none, shared, alone, to_save };
    /// nullopt if the item has no row. An item that was never filled has zeros.
    Result<std::optional<State>> read(sql::Connection& connection, const sql::Id& item,
                                      Hold hold = Hold::none) const;
    /// The states of many items, by index.
    Result<std::vector<std::optional<State>>> read_all(sql::Connection& connection,
                                                       std::span<const sql::Id> items) const;

    /// The part of a State that readers need.
    struct Stored {
        sql::Id item;
        std::int64_t count;
        std::int64_t epoch;
    };
    /// By index, in few statements; nullopt for an item without a row.
    Result<std::vector<std::optional<Stored>>> read_stored(sql::Connection& connection,
                                                           std::span<const sql::Id> items) const;
    /// sum() of each, by index, in few statements.
    Result<std::vector<std::int64_t>> sums(sql::Connection& connection,
                                           std::span<const sql::Id> items) const;

    /// The exact sum of the item's votes and its opening balance; an overflow error if it would
    /// leave 64 bits.
    Result<std::int64_t> sum(sql::Connection& connection, const sql::Id& item) const;
    Result<void> set_wide(sql::Connection& connection, const sql::Id& item) const;

    /// Raises the gen; the values read with it hold until a save with that gen. nullopt if the item
    /// has no row. Requests a recount if another cache has counted the item before: that cache's
    /// unsaved votes are in no count.
    Result<std::optional<State>> fence(sql::Connection& connection, const sql::Id& item,
                                       const std::string& holder) const;
    Result<std::vector<std::optional<State>>> fence_all(sql::Connection& connection,
                                                        std::span<const sql::Id> items,
                                                        const std::string& holder) const;
    /// As fence() for distinct items, and commits by itself; see SyncPages::fence(). nullopt if the
    /// dialect cannot do that.
    Result<std::optional<std::vector<SyncPages::Fenced>>> fence_at_once(
        sql::Connection& connection, std::span<const sql::Id> items, const std::string& holder,
        const std::string& space, Deadline deadline) const;
    Result<SaveState> save(sql::Connection& connection, const sql::Id& item,
                           const CacheEntry& entry) const;
    struct ToSave {
        sql::Id item;
        const CacheEntry* entry;
    };
    /// By index.
    Result<std::vector<SaveState>> save_all(sql::Connection& connection,
                                            std::span<const ToSave> saves) const;
    /// How many saves save_at_once() takes. 0: use save_all() instead.
    std::size_t saves_at_once() const;
    Result<std::vector<SaveState>> save_at_once(sql::Connection& connection,
                                                std::span<const ToSave> saves, bool waits,
                                                const std::string& space, Deadline deadline) const;
    /// The items that were filled and not saved since: a cache that loses their hashes has lost votes.
    /// Reads the whole of vote_sync.
    Result<void> visit_unsaved(sql::Connection& connection,
                               const std::function<void(sql::Id)>& visit) const;
    /// Sets item.vote_count to the sum of the votes and begins an epoch above both its own and
    /// `above`. Returns the epoch.
    Result<std::int64_t> recount(sql::Connection& connection, const sql::Id& item,
                                 std::int64_t above) const;

    struct ToRecount {
        sql::Id item;
        std::int64_t above;
    };
    /// The epochs by index; nullopt if the sum would exceed 64 bits: then the item stays as it was.
    Result<std::vector<std::optional<std::int64_t>>> recount_all(
        sql::Connection& connection, std::span<const ToRecount> recounts) const;

    struct Request {
        sql::Id item;  ///< As State::item.
        std::int64_t asked;
        sql::Id asked_for;  ///< As it was asked.
    };
    /// Requests a recount of each item, and counts repeated requests. Items are given once each.
    Result<void> ask_recounts(sql::Connection& connection, std::span<const sql::Id> items) const;
    /// Undoes `asks` of the requests, which triggers have made in this transaction.
    Result<void> take_back_asks(sql::Connection& connection, const sql::Id& item,
                                std::int64_t asks) const;
    Result<std::vector<Request>> recounts(sql::Connection& connection, std::size_t limit) const;
    /// Deletes requests, except those that were made again since they were read.
    Result<void> settle(sql::Connection& connection, std::span<const Request> requests) const;

    /// The cache id of these tables; a config error if another strategy counts them. `hold` keeps
    /// both until the transaction ends, which must be one that writes.
    Result<std::string> cache_id(sql::Connection& connection, bool hold = false) const;
    /// Draws a new cache id: counts under the old one are not used any more.
    Result<void> renew(sql::Connection& connection) const;

  private:
    SyncTable(const VotesOptions& options, const VoteNames& names, const VoteDialect& dialect,
              const sql::Statements& sql);

    // The outcome of a save that writes nothing; nullopt: the entry has to be written.
    static std::optional<SaveState> outcome_unwritten(const std::optional<State>& state,
                                                      const CacheEntry& entry);
    // Whether the dialect has SyncPages and the ids are distinct items.
    Result<bool> uses_pages(sql::Connection& connection, std::vector<sql::Id> items) const;
    Result<std::vector<std::optional<State>>> read_pages(sql::Connection& connection,
                                                         std::span<const sql::Id> items,
                                                         bool alone) const;

    VotesOptions options_;
    const sql::Grammar& grammar_;
    sql::Statement share_item_;
    sql::Statement lock_item_;
    sql::Statement lock_marks_;
    sql::Statement read_state_;
    sql::Statement sum_;
    std::unique_ptr<NumberedReads> read_stored_, sums_;
    sql::Statement set_wide_;
    sql::Statement set_wide_openings_;
    std::unique_ptr<BulkStatement> fence_;
    sql::Statement save_count_;
    sql::Statement save_marks_;
    sql::Statement unsaved_;
    std::unique_ptr<BulkStatement> new_epoch_;
    std::unique_ptr<BulkStatement> ask_;
    sql::Statement asked_;
    std::unique_ptr<BulkStatement> settle_;
    sql::Statement take_back_;
    sql::Statement forget_all_;
    sql::Statement read_marks_;
    sql::Statement hold_marks_;
    sql::Statement write_id_;
    std::unique_ptr<SyncPages> pages_;  // May be null.
};

}  // namespace hotcount
