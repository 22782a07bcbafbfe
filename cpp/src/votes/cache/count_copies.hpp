// Counts of strategy batched in a cache: copies, for readers only.
//
// An item's copy is the sum of its cells as a fold left it (n), and that fold's number (ver): a text
// "ver n" in Redis, a struct in memory. A fold publishes its counts after its commit. A reader that
// finds no copy reads the cells and writes a copy. The copy with the higher ver stays, so copies
// may come late, twice or in any order. A copy expires max_age after it was written: if a newer one
// was lost on the way, readers get the old count until then.
//
// No copy includes the journal's rows. If one reader added the journal's rows and the next one did
// not, the count would go back.
#pragma once

#include <hotcount/detail/base/fork.hpp>
#include <hotcount/result.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "votes/journal/journal.hpp"
#include "votes/tables/bulk_statement.hpp"
#include "votes/tables/layout.hpp"

namespace hotcount {

/// The store of the copies. Each call is one step per item: a script in Redis, a lock in memory.
/// Thread-safe. `space` names the tables, so that two databases share a cache.
class CopyStore {
  public:
    /// A copy of an item's count, as a cache keeps it.
    struct Copy {
        std::int64_t n{0};
        std::int64_t ver{0};
    };
    struct Named {
        std::string item;
        Copy copy;
    };

    virtual ~CopyStore() = default;

    /// By index; nullopt if the item has no copy.
    virtual Result<std::vector<std::optional<Copy>>> read(std::string_view space,
                                                          std::span<const std::string> items,
                                                          Timeout timeout) = 0;
    /// Writes the copies that are newer than the present ones. Each expires after `life`.
    virtual Result<void> write(std::string_view space, std::span<const Named> copies, Duration life,
                               Timeout timeout) = 0;
};

/// {store prefix}copy:{space}: and the item follows.
inline std::string copy_prefix(std::string_view store_prefix, std::string_view space) {
    return std::string{store_prefix} + "copy:" + std::string{space} + ":";
}

std::unique_ptr<CopyStore> make_memory_copy_store(std::shared_ptr<memory::Store> store);
std::unique_ptr<CopyStore> make_redis_copy_store(std::shared_ptr<redis::Client> client);

/// Thread-safe.
class CountCopies {
  public:
    CountCopies(std::shared_ptr<sql::Database> database, const VotesOptions& options,
                std::unique_ptr<CopyStore> store);

    /// Publishes a fold's committed counts; missing copies are created. Never fails. Waits 0.25 s
    /// at most for the cache; after a timeout the cache is skipped for a second.
    void publish(std::span<const FoldedCount> counts);
    /// Counts from the cache, and for items without a copy from the cells in SQL. A cache that does
    /// not answer within 0.1 s counts as empty.
    Result<std::vector<Count>> counts(std::span<const sql::Id> items, Deadline deadline);

  private:
    // The process's knowledge of the tables and the cache.
    struct Known {
        std::mutex mutex{};
        std::string space{};
        SteadyTime space_until{};
        SteadyTime cache_away_until{};
    };
    CountCopies(std::shared_ptr<sql::Database> database, const VotesOptions& options,
                std::unique_ptr<CopyStore> store, const VoteNames& names);
    Result<std::string> find_space(Deadline deadline, bool folds);
    // As find_space(); also draws the tables' name if they have none yet.
    Result<std::string> space(Deadline deadline, bool folds);
    bool cache_is_away();
    void note_cache(bool answered);
    void write(std::string_view space, std::span<const CopyStore::Named> copies, SteadyTime read_at,
               Duration patience);
    Count to_count(const CopyStore::Copy& copy, std::string_view source) const;

    const std::shared_ptr<sql::Database> database_;
    const VotesOptions options_;
    const Layout layout_;
    const std::unique_ptr<CopyStore> store_;
    const sql::Statement read_space_;
    const sql::Statement write_space_;
    NumberedReads read_cells_;
    ForkLocal<Known> known_;
};

}  // namespace hotcount
