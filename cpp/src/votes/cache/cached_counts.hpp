// The steps of strategy cached between SQL and the cache, for voters and workers alike.
//
//   voter    commit the vote and read the item's epoch -> increment the hash -> if that made the
//            hash: fill
//   fill     fence in SQL (raises gen, reads vote_count) -> land in the very hash it was made for
//   worker   scan -> read -> save in SQL what is unsaved -> mark; fill what lacks a gen; remove what
//            is saved and past its retention
//   recount  sum the votes in SQL, begin an epoch -> drop hashes of lower epochs
//
// This is always true, with U the votes that are committed and not yet in the cache:
//   no hash, or an unfilled one:  item.vote_count + value + U = the votes
//   a filled hash:                                 value + U = the votes
// - A fill lands only under the token that the hash had before SQL was read. Between the two no
//   save can have moved vote_count: every earlier gen belongs to an earlier hash, which was saved in
//   full before it was deleted, and the fence ended all its gens.
// - A save is an absolute count under (gen, version), and a gen belongs to one hash, so a stalled
//   worker's older count is refused.
// - A recount has all votes of lower epochs, also those whose increments are still on their way.
// A process that dies between two steps leaves work, and no wrong count, to the next worker. The
// item of a vote whose increment failed is written to vote_recount.
//
// Thread-safe.
#pragma once

#include <hotcount/detail/base/fork.hpp>
#include <hotcount/votes.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "count_cache.hpp"
#include "sync_table.hpp"

namespace hotcount {

class CachedCounts {
  public:
    CachedCounts(std::shared_ptr<sql::Database> database, VotesOptions options,
                 std::unique_ptr<CountCache> cache);

    const VotesOptions& options() const { return options_; }
    const SyncTable& table() const { return table_; }
    CountCache& cache() const { return *cache_; }
    sql::Database& database() const { return *database_; }

    std::string to_text(const sql::Id& item) const;
    /// None for text that no item of these tables has.
    std::optional<sql::Id> to_item(const std::string& text) const;

    struct Unfilled {
        std::string item;
        std::string token;
    };

    /// The id that these tables count under, asked of them now.
    Result<std::string> space(Deadline deadline);

    /// Counts committed votes. Never fails: what cannot be counted is noted as in doubt. Returns what
    /// is left to do, for finish(): counts are right without it, and a worker would do it.
    struct Unfinished {
        std::string space;
        std::vector<Unfilled> born;
        std::string identity;  // Of the cache, when they were; empty if it is not known.
        std::vector<std::optional<std::int64_t>> counts{};  // As CountCache::Incremented has them.
    };
    Unfinished count(std::string_view space, std::span<const CountCache::Increment> increments,
                     Deadline deadline);
    /// Fills what was born, and hands over what is in doubt, of earlier calls too: one that has left
    /// at its deadline could not.
    void finish(std::span<const Unfinished> left, Deadline deadline);
    /// Notes that votes for an item may be missing in its count.
    void doubt(const sql::Id& item, std::int64_t votes);
    /// Writes to SQL what was noted, for a worker to recount.
    Result<void> hand_over(Deadline deadline);
    /// Votes noted and not handed over yet.
    std::int64_t in_doubt(const sql::Id& item);
    bool has_doubts();

    /// `identity`: of the cache when the hashes were seen; asked for now if it is empty.
    Result<void> fill(std::string_view space, std::span<const Unfilled> hashes, Deadline deadline,
                      std::string identity = {});

    /// Recounts items that vote_recount names, at most `limit`; returns how many, `left` included.
    struct Recounted {
        std::int64_t done{0};
        std::int64_t left{0};  ///< Could not be recounted, or beyond the limit.
    };
    Result<Recounted> recount(std::string_view space, std::size_t limit, Deadline deadline);

  private:
    using Fences = std::vector<std::optional<SyncFence>>;
    Result<Fences> fence(const std::string& space, std::span<const sql::Id> items,
                         const std::string& holder, Deadline deadline);
    Result<Fences> fence_in_turn(const std::string& space, std::span<const sql::Id> items,
                                 const std::string& holder, Deadline deadline);

    struct Doubts {
        std::mutex mutex;
        std::map<sql::Id, std::int64_t> votes;
    };

    std::shared_ptr<sql::Database> database_;
    VotesOptions options_;
    SyncTable table_;
    std::unique_ptr<CountCache> cache_;
    ForkLocal<Doubts> doubts_;
};

std::shared_ptr<SyncWorker> make_sync_worker(std::shared_ptr<CachedCounts> cached);

}  // namespace hotcount
