// The store of strategy cached. An item's count there is one hash (a struct in memory):
//
//   value          gen > 0: the item's count. gen 0: the votes counted since the hash was born
//   gen            the fencing number that SQL gave the fill; 0: not filled yet
//   version        votes counted since the hash was born; it never falls
//   saved_version  the version that item.vote_count has; a higher version is unsaved
//   epoch          which recount in SQL its votes come after
//   token          drawn at its birth: a fill lands only in the very hash that it was made for
//   expires_at     last vote + retention; a worker may delete it then, once it is saved
//
// Each operation is one step for each item: a script in Redis, one lock in memory. Nothing here expires
// by itself. Hashes are spread over shards, and each shard has a name of its own that is lost with its
// hashes: one shard in memory and on one server, 128 in a Redis Cluster, where each is in one slot.
// Thread-safe. `space` is the id of the tables (vote_meta), so that two databases over one store do
// not count into each other's items.
#pragma once

#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

/// A hash as a worker or a reader found it.
struct CacheEntry {
    std::int64_t value;
    std::int64_t gen;
    std::int64_t version;
    std::int64_t saved_version;
    std::int64_t epoch;
    std::string token;
    Duration left;  ///< Of its retention; 0 or less: a worker may delete it.

    bool filled() const { return gen > 0; }
    bool unsaved() const { return saved_version < version; }
    bool due() const { return left <= Duration{0}; }
};

class CountCache {
  public:
    struct Increment {
        std::string item;
        std::int64_t difference;
        std::int64_t votes;  ///< The number of votes in it.
        std::int64_t epoch;  ///< As read by the transaction that committed the votes.
        bool asks{false};    ///< The caller wants the count after this increment.
    };
    enum class Counted : std::uint8_t {
        counted,   ///< Added to the hash.
        born,      ///< Added to a hash that this call made: the caller fills it.
        outdated,  ///< Not added: a recount, which the hash has seen already, counted it.
    };
    struct Fill {
        std::string item;
        std::string token;
        std::int64_t gen;
        std::int64_t epoch;
        std::int64_t base;  ///< item.vote_count.
    };
    struct Mark {
        std::string item;
        std::int64_t gen;
        std::int64_t version;
    };
    struct Outdated {
        std::string item;
        std::int64_t epoch;
    };
    struct Page {
        std::vector<std::string> items;
        std::string next;  ///< The cursor to go on from; "0" if this was the last page.
        /// A node of a cluster did not answer: its items are missing, and `next` is behind it.
        std::optional<Error> failed{};
    };
    using Entries = std::vector<Result<std::optional<CacheEntry>>>;

    virtual ~CountCache() = default;

    /// Adds to hashes; one that is absent, or from before the increment's epoch, is born anew
    /// under `token`. Results by index.
    struct Incremented {
        std::vector<Result<Counted>> states;
        /// For each hash that was born its shard's identity at that time, or empty text if it had
        /// none. Empty if no hash was born.
        std::vector<std::string> identities{};
        /// The counts for increments that ask, if their hash is filled; empty if none asks.
        std::vector<std::optional<std::int64_t>> counts{};
    };
    virtual Incremented increment(std::string_view space, std::span<const Increment> increments,
                                  std::string_view token, Timeout timeout) = 0;
    /// Writes SQL's counts to hashes. In an unfilled hash the base is added to the votes counted
    /// since its birth; in a filled one only a higher gen is recorded. False if there was nothing
    /// to do. Results by index.
    virtual std::vector<Result<bool>> land(std::string_view space, std::span<const Fill> fills,
                                           Timeout timeout) = 0;
    Result<bool> land(std::string_view space, const Fill& fill, Timeout timeout) {
        return std::move(land(space, std::span{&fill, 1}, timeout).front());
    }
    virtual Entries read(std::string_view space, std::span<const std::string> items,
                         Timeout timeout) = 0;
    /// A part of the items that have a hash; cursor "0" begins. Each that is there throughout is
    /// seen at least once, unless its slot of a cluster moves meanwhile.
    virtual Result<Page> scan(std::string_view space, const std::string& cursor, std::size_t page,
                              Timeout timeout) = 0;
    /// Marks hashes that still have that gen as saved.
    virtual Result<void> mark(std::string_view space, std::span<const Mark> marks,
                              Timeout timeout) = 0;
    /// Deletes hashes that are due, saved, and still of that gen and version. Returns the number.
    virtual Result<std::int64_t> remove(std::string_view space, std::span<const Mark> marks,
                                        Timeout timeout) = 0;
    /// Deletes hashes of lower epochs.
    virtual Result<void> drop(std::string_view space, std::span<const Outdated> items,
                              Timeout timeout) = 0;
    /// By index, the name of the shard that has the item's hash: drawn when it is first asked for and
    /// lost with the shard's hashes. Shards may have a name in common.
    virtual std::vector<Result<std::string>> identities(std::string_view space,
                                                        std::span<const std::string> items,
                                                        Timeout timeout) = 0;
    virtual std::size_t shard_of(std::string_view item) const {
        (void)item;
        return 0;
    }
    /// Whether the shards are on several servers, of which one may be away while others answer.
    virtual bool is_spread() const { return false; }
    /// By shard, a number for the history of its server's data. It changes when another server takes
    /// the shard over, also if the former one has it back since, and when the server starts again: its
    /// data may lack the last writes. 0: the server did not answer. Empty if no shard ever changes
    /// servers.
    virtual std::vector<std::uint64_t> histories(std::string_view space, Timeout timeout) {
        (void)space, (void)timeout;
        return {};
    }
    /// How long a call without a timeout may take.
    virtual Duration default_timeout() const = 0;
};

/// How long a call waits for one of several servers, while others may answer.
inline constexpr Duration kNodePatience = std::chrono::seconds{1};

/// {store prefix}votes:{space}: and the item follows.
inline std::string counts_prefix(std::string_view store_prefix, std::string_view space) {
    return std::string{store_prefix}.append("votes:").append(space) + ":";
}
inline std::string identity_key(std::string_view store_prefix, std::string_view space) {
    return std::string{store_prefix}.append("votes@").append(space);
}

/// FNV-1a: the same in every process and release, or two would put one item in two shards.
constexpr std::uint64_t stable_hash(std::string_view text) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char byte : text) {
        hash = (hash ^ static_cast<unsigned char>(byte)) * 0x100000001b3;
    }
    return hash;
}

/// An item's id as keys of a cache have it.
inline std::string to_text(const sql::Id& item) {
    if (const auto* number = std::get_if<std::int64_t>(&item)) return std::to_string(*number);
    return std::get<std::string>(item);
}

/// 128 random bits in hex: the name of a hash's life, of a cache, of a set of tables.
std::string random_name();

std::unique_ptr<CountCache> make_memory_count_cache(std::shared_ptr<memory::Store> store,
                                                    Duration retention);
std::unique_ptr<CountCache> make_redis_count_cache(std::shared_ptr<redis::Client> client,
                                                   Duration retention);

}  // namespace hotcount
