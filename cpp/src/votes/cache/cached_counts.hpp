// The steps of strategy cached between SQL and the cache, for voters and workers alike.
//
//   voter    commit the vote and read the item's epoch -> increment the hash -> if that made the
//            hash: fill
//   fill     fence in SQL (raises gen, reads vote_count) -> land in the very hash it was made for
//   worker   scan -> read -> save in SQL what is unsaved -> mark; fill what lacks a gen; remove what
//            is saved and past its retention
//   recount  sum the votes in SQL, begin an epoch -> drop hashes of lower epochs
//
// Invariant, with U the votes that are committed and not yet in the cache:
//   no hash, or an unfilled one:  item.vote_count + value + U = the votes
//   a filled hash:                                 value + U = the votes
// - A fill lands only under the token that the hash had before SQL was read. No save can change
//   vote_count in between: every earlier gen belongs to an earlier hash, which was saved completely
//   before it was deleted, and the fence ended all its gens.
// - A save is an absolute count under (gen, version), and a gen belongs to one hash, so a stalled
//   worker's older count is refused.
// - A recount includes all votes of lower epochs, also those whose increments have not arrived.
// If a process dies between two steps, the next worker completes them; no count is wrong. The item of
// a vote whose increment failed is written to vote_recount.
//
// Thread-safe.
#pragma once

#include <algorithm>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/votes.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "count_cache.hpp"
#include "sync_table.hpp"

namespace hotcount {

/// The shards of a cluster that did not answer in a round, which goes on without them: their items are
/// left, and the round ends with the error. Thread-safe.
class SilentShards {
  public:
    bool has(std::size_t shard) const {
        const std::lock_guard lock(mutex_);
        return shards_.count(shard) != 0;
    }
    /// Fails with the error where one server has all items, or the store is closed.
    Result<void> leave(const CountCache& cache, std::optional<std::size_t> shard,
                       const Error& error) {
        if (!cache.is_spread() || error.code == ErrorCode::closed) return error;
        const std::lock_guard lock(mutex_);
        if (shard) shards_.insert(*shard);
        if (!error_) error_ = error;
        return {};
    }
    /// Leaves one that has not answered; a later call gets the error.
    void skip(std::size_t shard) {
        const std::lock_guard lock(mutex_);
        shards_.insert(shard);
    }
    /// Of the first that was left.
    std::optional<Error> error() const {
        const std::lock_guard lock(mutex_);
        return error_;
    }
    void clear() {
        const std::lock_guard lock(mutex_);
        shards_.clear();
        error_.reset();
    }

  private:
    mutable std::mutex mutex_;
    std::set<std::size_t> shards_{};
    std::optional<Error> error_{};
};

class CachedCounts {
  public:
    CachedCounts(std::shared_ptr<sql::Database> database, VotesOptions options,
                 std::unique_ptr<CountCache> cache);

    const VotesOptions& options() const { return options_; }
    const SyncTable& table() const { return table_; }
    CountCache& cache() const { return *cache_; }
    sql::Database& database() const { return *database_; }

    std::string to_text(const sql::Id& item) const;
    /// Returns nullopt for text that is no id of these tables.
    std::optional<sql::Id> to_item(const std::string& text) const;

    struct Unfilled {
        std::string item;
        std::string token;
        std::string identity{};  ///< Its shard's when it was born; if empty, it is read now.
    };

    /// Reads the id under which these tables are counted.
    Result<std::string> space(Deadline deadline);

    /// Counts committed votes. Never fails: votes that cannot be counted are noted as in doubt.
    /// Returns the remaining work for finish(). Counts are right without finish(); a worker would do
    /// the work later.
    struct Unfinished {
        std::string space;
        std::vector<Unfilled> born;
        std::vector<std::optional<std::int64_t>> counts{};  // As in CountCache::Incremented.
    };
    Unfinished count(std::string_view space, std::span<const CountCache::Increment> increments,
                     Deadline deadline);
    /// Fills new hashes and hands over doubts, including those of calls that ended at their deadline.
    void finish(std::span<const Unfinished> left, Deadline deadline);
    /// Notes that votes for an item may be missing in its count.
    void doubt(const sql::Id& item, std::int64_t votes);
    /// Writes the doubts to SQL, so that a worker recounts the items.
    Result<void> hand_over(Deadline deadline);
    /// The number of an item's votes in doubt that are not handed over.
    std::int64_t in_doubt(const sql::Id& item);
    bool has_doubts();

    /// Brings the counts of SQL to hashes.
    struct Filled {
        std::set<std::string> failed{};  ///< The items whose hashes are not filled.
        std::optional<Error> error{};    ///< The first.

        void fail(const std::string& item, const Error& why) {
            failed.insert(item);
            if (!error) error = why;
        }
    };
    Filled fill(std::string_view space, std::span<const Unfilled> hashes, Deadline deadline);
    /// How long a call of the cache may take: less than the rest of the time if one of several servers
    /// may be away.
    Duration patience(Deadline deadline) const {
        const Duration left = deadline.remaining();
        return cache_->is_spread() ? std::min(left, kNodePatience) : left;
    }

    /// Recounts at most `limit` items of vote_recount, none of them of `silent` shards.
    struct Recounted {
        std::int64_t done{0};
        std::int64_t left{0};  ///< Items that could not be recounted, or beyond the limit.
    };
    Result<Recounted> recount(std::string_view space, std::size_t limit, SilentShards& silent,
                              Deadline deadline);

  private:
    // The hashes and items of one holder, which share a fence.
    struct OfHolder {
        std::vector<const Unfilled*> hashes{};
        std::vector<sql::Id> items{};
    };
    std::map<std::string, OfHolder> by_holder(std::string_view space,
                                              std::span<const Unfilled> hashes, Filled& filled,
                                              Deadline deadline);
    struct Requests {
        std::vector<SyncTable::Request> found{};
        std::int64_t left{0};  // Requests beyond `found`, at least.
    };
    Result<Requests> read_requests(std::size_t limit, const SilentShards& silent,
                                   Deadline deadline);
    using Fences = std::vector<std::optional<SyncFence>>;
    Result<Fences> fence(const std::string& space, std::span<const sql::Id> items,
                         const std::string& holder, Deadline deadline);
    Result<Fences> fence_in_turn(const std::string& space, std::span<const sql::Id> items,
                                 const std::string& holder, Deadline deadline);

    struct Doubt {
        std::int64_t votes{0};
        std::uint64_t last{0};  // The number of the last doubt about it.
    };
    struct Doubts {
        std::mutex mutex;
        std::map<sql::Id, Doubt> items{};  // Until SQL has a note of them.
        std::uint64_t doubts{0};
    };

    std::shared_ptr<sql::Database> database_;
    VotesOptions options_;
    SyncTable table_;
    std::unique_ptr<CountCache> cache_;
    ForkLocal<Doubts> doubts_;
};

std::shared_ptr<SyncWorker> make_sync_worker(std::shared_ptr<CachedCounts> cached);

}  // namespace hotcount
