// Counts of strategy batched in a cache: copies, for readers only.
//
// An item's copy is one hash (a struct in memory), which lives for at most max_age:
//
//   token   until it is filled: who fills it. A fill lands only in the very hash that it was
//           begun in; one that died leaves an empty hash that ends by itself
//   at      when the fill began, on the cache's clock: votes committed before are in it
//   n, ver  cell 0 as a transaction has read it. The higher ver stands, so that copies may come
//           late, twice or in any order
//   rest    the sum of the item's other cells, which only strategy slotted writes, at the fill
//
// A vote's transaction reads the cells that it has moved and publishes them after its commit,
// into hashes that are there. What is lost on the way is missed for max_age and no longer.
#pragma once

#include <hotcount/base/fork.hpp>
#include <hotcount/base/result.hpp>
#include <hotcount/votes/votes.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bulk_statement.hpp"
#include "layout.hpp"

namespace hotcount {

/// What a mirror asks of a store. Each call is one step per item: a script in Redis, a lock in
/// memory. Thread-safe. `space` names the tables, so that two databases share a cache.
class MirrorStore {
  public:
    struct Cell {
        std::string item;
        std::int64_t n;
        std::int64_t ver;
        std::int64_t rest{0};
    };
    struct Copy {
        std::int64_t value;
        Duration age;  ///< Since its fill began.
    };

    virtual ~MirrorStore() = default;

    /// Copies by index; none where the item has none that is filled.
    virtual Result<std::vector<std::optional<Copy>>> read(std::string_view space,
                                                          std::span<const std::string> items,
                                                          Timeout timeout) = 0;
    /// Makes hashes where there are none. By index, whether it did: those are the caller's to fill.
    virtual Result<std::vector<bool>> begin(std::string_view space,
                                            std::span<const std::string> items,
                                            std::string_view token, Timeout timeout) = 0;
    /// Fills those that still have the token.
    virtual Result<void> land(std::string_view space, std::span<const Cell> cells,
                              std::string_view token, Timeout timeout) = 0;
    /// Moves hashes that are there, filled or not, to a higher ver.
    virtual Result<void> publish(std::string_view space, std::span<const Cell> cells,
                                 Timeout timeout) = 0;
    virtual Result<void> drop(std::string_view space, std::span<const std::string> items,
                              Timeout timeout) = 0;
};

/// How long a fill may take, from its beginning to its landing.
inline constexpr Duration kFillLease = std::chrono::seconds{5};

/// {store prefix}mirror:{space}: and the item follows.
inline std::string mirror_prefix(std::string_view store_prefix, std::string_view space) {
    return std::string{store_prefix} + "mirror:" + std::string{space} + ":";
}

std::unique_ptr<MirrorStore> make_memory_mirror_store(std::shared_ptr<memory::Store> store,
                                                      Duration max_age);
std::unique_ptr<MirrorStore> make_redis_mirror_store(std::shared_ptr<redis::Client> client,
                                                     Duration max_age);

/// Thread-safe.
class CountMirror {
  public:
    CountMirror(std::shared_ptr<sql::Database> database, const VotesOptions& options,
                std::shared_ptr<const Layout> layout, std::unique_ptr<MirrorStore> store);

    struct Moved {
        std::string space{};
        std::vector<MirrorStore::Cell> cells{};
    };

    /// Names the tables, where they have no name yet: votes for tables without one are not
    /// published, as nobody has looked for copies.
    Result<void> name_tables(Deadline deadline);
    /// Inside a transaction that has moved cells: what publish() is to say of these items, each
    /// once.
    Result<Moved> moved(sql::Connection& connection, std::span<const sql::Id> items);
    /// After its commit. Never fails: a cache that does not answer is left alone for a second.
    void publish(const Moved& moved);

    /// From the cache, and from SQL what it does not have; a cache that does not answer has
    /// nothing.
    Result<std::vector<Count>> counts(std::span<const sql::Id> items, Deadline deadline);
    /// Counts that were set right in SQL.
    void drop(std::span<const sql::Id> items, Deadline deadline);

  private:
    // What is known of the tables and the cache. Per process.
    struct Known {
        std::mutex mutex{};
        std::string space{};
        SteadyTime space_until{};
        SteadyTime cache_away_until{};
    };
    CountMirror(std::shared_ptr<sql::Database> database, const VotesOptions& options,
                std::shared_ptr<const Layout> layout, std::unique_ptr<MirrorStore> store,
                const VoteNames& names, const sql::Grammar& grammar);
    /// Empty where it is not known, or has been for max_age: tables made anew have another.
    std::string known_space();
    Result<std::string> read_space(sql::Connection& connection);
    Result<std::string> space(Deadline deadline);
    bool cache_is_away();
    void note_cache(bool answered);
    Timeout patience(Deadline deadline) const;
    Result<MirrorStore::Cell> read_cells(sql::Connection& connection, const sql::Id& item,
                                         const std::string& text);

    const std::shared_ptr<sql::Database> database_;
    const VotesOptions options_;
    const std::shared_ptr<const Layout> layout_;
    const std::unique_ptr<MirrorStore> store_;
    const sql::Statement read_space_;
    const sql::Statement write_space_;
    const sql::Statement read_cells_;
    BulkStatement read_moved_;
    ForkLocal<Known> known_;
};

/// A batch writer that also tells the mirror.
std::shared_ptr<sql::BatchWriter> mirrored(std::shared_ptr<sql::BatchWriter> writer,
                                           std::shared_ptr<CountMirror> mirror);

}  // namespace hotcount
