// An in-process store: sharded, expiring, bounded. The embedded default, and the model that the
// contract tests hold servers against.
//
//   full key  ->  Entry { value, expires_at }      one hash map per shard
//
// Safe from many threads: one mutex per shard, so threads meet only on keys of one shard. What is
// stored lives as long as the process; a forked child gets a copy that is its own from then on.
//
// Expiry is exact for readers (an expired entry is absent at once) and lazy for memory: an expired
// entry is dropped when it is touched, or when a new key comes by. Of every 16 new keys of a shard one
// looks at the next 32 entries there, so that a shard which grows has been looked through before it
// has doubled; at the bound each new key looks at 1,024 entries of the store at most. No call looks at
// more for expired ones.
//
// Keys are hashed by SipHash under a key of this process: nobody can choose keys that collide.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/detail/memory/patrol.hpp>
#include <hotcount/detail/memory/sorted_set.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

namespace hotcount::memory {

/// What becomes of a limiter's new key in a full store. No live state is ever dropped for it: who
/// could make us forget a denied key by touching others would be limited no more.
enum class WhenFull : std::uint8_t {
    admit,   ///< The hit is admitted and not remembered, which its decision and the stats say.
    refuse,  ///< A capacity error.
};
std::string_view to_string(WhenFull when_full);
/// An unknown name is a config error that lists the known ones.
Result<WhenFull> parse_when_full(std::string_view name);

struct StoreOptions {
    /// Most keys held at once. At the bound expired keys are dropped first, a limiter's among them
    /// as soon as they are worth nothing any more; where the next 1,024 entries have none, a new key
    /// is refused with a capacity error, a limiter's as `when_full` says, although an expired one may
    /// stand further on: the next call looks there. More costs about 120 bytes a key plus its length.
    std::size_t max_keys{1'000'000};
    /// Either is an attack on somebody: admit lets who floods the store with keys pass unlimited,
    /// refuse lets them keep everybody new out.
    WhenFull when_full{WhenFull::admit};
    /// Put before every key, as a Redis store does; keeps two applications apart.
    std::string prefix{};
    /// How many separately locked parts, rounded up to a power of two. More: fewer collisions of
    /// busy threads; each costs a map and a mutex.
    std::size_t shards{64};
    /// Where the time for expiry comes from.
    std::shared_ptr<const Clock> clock{system_clock()};
};

/// The results of adding calls by their op_id, so that a retry is counted once. It stands beside the
/// counter's key and outlives it.
class OpLedger {
  public:
    /// The remembered result, if it is not yet to be forgotten.
    std::optional<std::int64_t> find(std::string_view op_id, SteadyTime now) const;
    /// Until `forget_at`.
    void remember(std::string_view op_id, std::int64_t result, SteadyTime now,
                  SteadyTime forget_at);
    /// From when on nothing is remembered; the beginning of time where nothing ever was.
    SteadyTime empty_from() const { return empty_from_; }
    /// How many are held, some of those that are forgotten included.
    std::size_t size() const { return ops_.size(); }

  private:
    struct Op {
        std::int64_t result;
        SteadyTime forget_at;
    };
    using Ops = std::unordered_map<std::string, Op, KeyedHash, std::equal_to<>>;

    Ops ops_;
    Patrol<Ops> patrol_;  // Two looked at for each that comes: what is too old does not pile up.
    SteadyTime empty_from_{SteadyTime::min()};
};

/// What a rate limiter remembers of a key: two integers, whose meaning its algorithm gives them.
struct LimitState {
    std::int64_t a{0};
    std::int64_t b{0};
};

/// The callers that a window has admitted, in order.
using Callers = std::vector<std::string>;

/// An item's count while it is ahead of the database: what votes/ keeps, the same fields as in Redis.
struct CachedCount {
    std::int64_t value{0};
    std::int64_t gen{0};
    std::int64_t version{0};
    std::int64_t saved_version{0};
    std::int64_t epoch{0};
    std::string token{};
    SteadyTime expires_at{};
};

/// A copy of an item's count in a database: what votes/ keeps, as in Redis.
struct CountCopy {
    std::int64_t n{0};
    std::int64_t ver{0};
};

/// What a key may hold: one type for its whole life, as on a server. A concept that finds another
/// than its own answers with a wrong_type error.
using Value = std::variant<std::int64_t, LimitState, Callers, SortedSet, Versions, CachedCount,
                           CountCopy, OpLedger>;

/// What stands under a key.
struct Entry {
    Value value{std::int64_t{0}};
    std::optional<SteadyTime> expires_at{};

    bool expired(SteadyTime now) const { return expires_at && *expires_at <= now; }

    /// The value as a T: made where the entry is fresh, null where it holds another type.
    template <class T>
    T* as(bool fresh) {
        if (fresh) return &value.template emplace<T>();
        return std::get_if<T>(&value);
    }
    template <class T>
    const T* as() const {
        return std::get_if<T>(&value);
    }
};

class Store final : ForkAware {
  public:
    ~Store();
    static Result<std::shared_ptr<Store>> make(StoreOptions options = {});

    const StoreOptions& options() const { return options_; }
    SteadyTime now() const { return options_.clock->steady_now(); }

    /// Calls visit(Entry*) under the key's lock: nullptr where the key is absent or expired.
    /// The pointer must not outlive the call; visit must not call into the store.
    template <class Visit>
    auto read(std::string_view key, Visit&& visit) {
        const Hashed name = hashed(key);
        Shard& shard = shard_of(name);
        std::lock_guard lock(shard.mutex);
        return visit(find_live(shard, name));
    }

    /// Calls visit(Entry&, bool fresh) under the key's lock; an absent key is made first (fresh),
    /// or refused with a capacity error at the bound. A visit that fails takes a fresh key back.
    template <class Visit>
    auto upsert(std::string_view key, Visit&& visit)
        -> decltype(visit(std::declval<Entry&>(), true)) {
        const Hashed name = hashed(key);
        Shard& shard = shard_of(name);
        std::unique_lock lock(shard.mutex);
        auto place = find_or_insert(shard, lock, name);
        if (!place) return std::move(place).error();
        auto result = visit(*place->entry, place->fresh);
        if (place->fresh && !result.ok()) {
            erase(shard, name);
        } else {
            note_expiry(shard, *place->entry);
        }
        return result;
    }

    /// Calls visit(Entry*) as read() does, and removes the key where it returns a good result.
    template <class Visit>
    auto remove(std::string_view key, Visit&& visit) {
        const Hashed name = hashed(key);
        Shard& shard = shard_of(name);
        std::lock_guard lock(shard.mutex);
        auto result = visit(find_live(shard, name));
        if (result.ok()) erase(shard, name);
        return result;
    }

    /// Calls visit(Entry*) as read() does, where the visit may change the entry. An entry that is
    /// given an expiry of now() is gone with the visit.
    template <class Visit>
    auto modify(std::string_view key, Visit&& visit) {
        const Hashed name = hashed(key);
        Shard& shard = shard_of(name);
        std::lock_guard lock(shard.mutex);
        Entry* const entry = find_live(shard, name);
        auto result = visit(entry);
        if (entry != nullptr) note_expiry(shard, *entry);
        return result;
    }

    /// Calls visit(Entry* entry, Entry* companion) as modify() does, with the entry beside the key's
    /// that modify_with() made, where it is there.
    template <class Visit>
    auto modify_both(std::string_view key, std::string_view companion, Visit&& visit) {
        const Hashed name = hashed(key);
        Shard& shard = shard_of(name);
        std::lock_guard lock(shard.mutex);
        Entry* const entry = find_live(shard, name);
        Entry* const beside = find_live(shard, hashed(companion));
        auto result = visit(entry, beside);
        if (entry != nullptr) note_expiry(shard, *entry);
        if (beside != nullptr) note_expiry(shard, *beside);
        return result;
    }

    /// Calls visit(Entry* entry, Entry& companion, bool fresh) as modify() does, with an entry
    /// beside the key's that can outlive it; both change under one lock. A fresh companion that the
    /// visit gave no expiry is taken back. A companion is reached through its key only: it lives
    /// in the key's shard, whatever its own name.
    template <class Visit>
    auto modify_with(std::string_view key, std::string_view companion, Visit&& visit)
        -> decltype(visit(static_cast<Entry*>(nullptr), std::declval<Entry&>(), true)) {
        const Hashed name = hashed(key);
        Shard& shard = shard_of(name);
        std::unique_lock lock(shard.mutex);
        // First, because it may let go of the lock to make room.
        auto place = find_or_insert(shard, lock, hashed(companion));
        if (!place) return std::move(place).error();
        Entry* const entry = find_live(shard, name);
        auto result = visit(entry, *place->entry, place->fresh);
        if (entry != nullptr) note_expiry(shard, *entry);
        if (place->fresh && !place->entry->expires_at) {
            erase(shard, hashed(companion));
        } else {
            note_expiry(shard, *place->entry);
        }
        return result;
    }

    /// Calls visit(Entry& entry, bool fresh, Entry& companion) as upsert() does, with an entry beside
    /// the key's as modify_with() does; both are made first where they are absent, the companion
    /// with a T. A companion that has no expiry afterwards is taken back.
    template <class T, class Visit>
    auto upsert_with(std::string_view key, std::string_view companion, Visit&& visit)
        -> decltype(visit(std::declval<Entry&>(), true, std::declval<Entry&>())) {
        const Hashed name = hashed(key);
        Shard& shard = shard_of(name);
        std::unique_lock lock(shard.mutex);
        while (true) {
            auto beside = find_or_insert(shard, lock, hashed(companion));
            if (!beside) return std::move(beside).error();
            if (beside->fresh) beside->entry->value.template emplace<T>();
            auto place = find_or_insert(shard, lock, name);
            // Making room for the key may have let go of the lock and the companion have expired.
            Entry* const kept = find_live(shard, hashed(companion));
            if (!place || kept == nullptr) {
                if (place && place->fresh) erase(shard, name);
                if (kept != nullptr && !kept->expires_at) erase(shard, hashed(companion));
                if (!place) return std::move(place).error();
                continue;
            }
            auto result = visit(*place->entry, place->fresh, *kept);
            if (place->fresh && !result.ok()) {
                erase(shard, name);
            } else {
                note_expiry(shard, *place->entry);
            }
            if (kept->expires_at) {
                note_expiry(shard, *kept);
            } else {
                erase(shard, hashed(companion));
            }
            return result;
        }
    }

    /// Removes every live entry for which predicate(key, const Entry&) is true, one shard at a
    /// time; keys made or removed meanwhile may or may not be seen. Returns how many it removed.
    template <class Predicate>
    std::size_t erase_if(Predicate&& predicate) {
        std::size_t erased = 0;
        for (Shard& shard : shards_) {
            std::lock_guard lock(shard.mutex);
            const SteadyTime at = now();
            shard.patrol.restart();
            erased += std::erase_if(shard.entries, [&](const auto& item) {
                return !item.second.expired(at) && predicate(item.first, item.second);
            });
        }
        size_.fetch_sub(erased, std::memory_order_relaxed);
        return erased;
    }

    /// Calls visit(key, const Entry&) for each live entry of one of the options().shards parts,
    /// under its lock; visit must not call into the store.
    template <class Visit>
    void visit_shard(std::size_t index, Visit&& visit) {
        Shard& shard = shards_[index];
        std::lock_guard lock(shard.mutex);
        const SteadyTime at = now();
        for (const auto& [key, entry] : shard.entries) {
            if (!entry.expired(at)) visit(std::string_view{key}, entry);
        }
    }

    /// Live and not yet dropped expired entries.
    std::size_t size() const { return size_.load(std::memory_order_relaxed); }

    struct Stats {
        std::size_t keys;         ///< Held now, expired ones not yet dropped included.
        std::size_t max_keys;     ///< The bound.
        std::uint64_t swept;      ///< Expired entries dropped so far.
        std::uint64_t refused;    ///< Writes refused at the bound so far, the untracked not among.
        std::uint64_t untracked;  ///< Hits admitted at the bound without being remembered.
    };
    Stats stats() const;
    /// True where a write that was refused so is to be admitted all the same; counts it.
    bool admits_untracked(const Error& error);

    explicit Store(StoreOptions options);  // Use make(), which checks the options.

  private:
    // A key with its hash, which both the shard and the place in it are found by.
    struct Hashed {
        std::string_view text;
        std::size_t hash;
    };
    struct Hasher {
        using is_transparent = void;
        std::size_t operator()(const Hashed& key) const { return key.hash; }
        std::size_t operator()(std::string_view key) const { return keyed_hash(key); }
    };
    struct Same {
        using is_transparent = void;
        bool operator()(const Hashed& a, std::string_view b) const { return a.text == b; }
        bool operator()(std::string_view a, const Hashed& b) const { return a == b.text; }
        bool operator()(std::string_view a, std::string_view b) const { return a == b; }
    };
    using Entries = std::unordered_map<std::string, Entry, Hasher, Same>;
    // One cache line and more apart, so that busy shards do not slow each other down.
    struct alignas(64) Shard {
        std::mutex mutex;
        Entries entries;
        Patrol<Entries> patrol;
        std::size_t inserts{0};
        // No entry expires before this, so that a full store does not search itself in vain.
        SteadyTime next_expiry{SteadyTime::max()};
        // The same of what this round of the patrol has met, and of what changed meanwhile.
        SteadyTime round_expiry{SteadyTime::max()};
    };

    Shard& shard_of(const Hashed& key) {
        // The map inside uses the low bits; the shard is chosen by high ones, so that the keys of a
        // shard still spread over its buckets.
        return shards_[(key.hash >> 40) & shard_mask_];
    }
    static Hashed hashed(std::string_view key) { return {key, keyed_hash(key)}; }
    Entry* find_live(Shard& shard, const Hashed& key);
    struct Place {
        Entry* entry;
        bool fresh;
    };
    Result<Place> find_or_insert(Shard& shard, std::unique_lock<std::mutex>& lock,
                                 const Hashed& key);
    void erase(Shard& shard, const Hashed& key);
    void erase(Shard& shard, Entries::iterator entry);
    static void note_expiry(Shard& shard, const Entry& entry) {
        if (!entry.expires_at) return;
        shard.next_expiry = std::min(shard.next_expiry, *entry.expires_at);
        shard.round_expiry = std::min(shard.round_expiry, *entry.expires_at);
    }
    struct Sweep {
        std::size_t met{0};
        std::size_t dropped{0};
    };
    Sweep sweep(Shard& shard, SteadyTime now, std::size_t most);
    void make_room();
    void before_fork() override;
    void after_fork(bool in_child) override;

    StoreOptions options_;
    std::size_t shard_mask_;
    std::vector<Shard> shards_;
    std::atomic<std::size_t> next_shard_{0};  // Where the next search for room begins.
    std::atomic<std::size_t> size_{0};
    std::atomic<std::uint64_t> swept_{0};
    std::atomic<std::uint64_t> refused_{0};
    std::atomic<std::uint64_t> untracked_{0};
};

/// The store that `memory://NAME` names in this process, made on first use and dropped with its
/// last holder. Options count only where the store is made.
Result<std::shared_ptr<Store>> named_store(std::string_view name, StoreOptions options = {});

}  // namespace hotcount::memory
