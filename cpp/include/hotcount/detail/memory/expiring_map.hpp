// A sharded, bounded hash map of values that expire: the base of memory::Store, on which counters,
// limiters and sets are built.
//
//   full key  ->  Entry { value, expires_at }      one hash map per shard
//
// Safe from many threads: one mutex per shard, so threads meet only on keys of one shard. A visit
// runs under its shard's lock and must not call into the map. A forked child gets a copy that is its
// own from then on.
//
// Expiry is exact for readers: an expired entry is absent at once. For memory it is lazy: an expired
// entry is dropped when it is touched, or when a new key comes. Of every 16 new keys of a shard that
// has 32 or more, one looks at the next 32 entries there, so that a shard that grows has been looked
// through before it has doubled. At the bound each new key looks at 1,024 entries of the map at most.
// No call looks at more for expired ones.
//
// Keys are hashed by SipHash under a random key of this process: users cannot choose collisions.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/event.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/detail/memory/entry_table.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotcount {

// -- the time, for half of what a clock costs or less ----------------------------------------------

namespace detail {

// The processor's time stamp counter. In a measurement it took about 10 ns, and the clock 25 ns. It
// only shows that almost no time has passed, so its exact rate does not matter, nor do differences
// between the counters of a machine's processors.
#if defined(__x86_64__)
inline std::uint64_t ticks() { return __builtin_ia32_rdtsc(); }
inline constexpr std::uint64_t kRecentTicks = 1'000;  // At 1 GHz or more: at most 1 us.
#else
inline std::uint64_t ticks() { return 0; }
inline constexpr std::uint64_t kRecentTicks = 0;  // Always reads the clock.
#endif

struct SeenTime {
    std::uint64_t ticks;
    SteadyTime time;
};
extern constinit thread_local SeenTime seen_time;

SteadyTime look_at_clock(std::uint64_t ticks);

}  // namespace detail

/// The time of std::chrono::steady_clock, up to 1 us old. It never goes backwards within a thread,
/// but may by 1 us between threads. Thread-safe.
inline SteadyTime recent_steady_time() {
    const std::uint64_t now = detail::ticks();
    const detail::SeenTime& seen = detail::seen_time;
    return now - seen.ticks < detail::kRecentTicks ? seen.time : detail::look_at_clock(now);
}

}  // namespace hotcount

namespace hotcount::memory {

class ExpiringMap : ForkAware {
  public:
    /// Both the shard and the place in it are found by the hash.
    using Hashed = HashedKey;
    static Hashed hashed(std::string_view key) { return {{}, key, keyed_hash(key)}; }
    static Hashed hashed(const KeyedHashAfter& after, std::string_view rest) {
        return {after.beginning(), rest, after(rest)};
    }

    /// `shards` is a power of two.
    ExpiringMap(std::size_t max_keys, std::size_t shards, std::shared_ptr<const Clock> clock);
    ~ExpiringMap();

    SteadyTime now() const { return clock_->steady_now(); }
    /// now(), or what it was in this thread less than a microsecond ago.
    SteadyTime recent_now() const { return reads_system_ ? recent_steady_time() : now(); }

    /// Calls visit(const Entry*) under the key's lock: nullptr if the key is absent or expired.
    /// The pointer must not outlive the call; visit must not call into the store.
    template <class Visit>
    auto read(std::string_view key, Visit&& visit) {
        const Hashed name = hashed(key);
        Shard& shard = shard_of(name);
        std::lock_guard lock(shard.mutex);
        const Entry* const entry = find_live(shard, name);
        return visit(entry);
    }

    /// Calls visit(Entry&, bool fresh) under the key's lock; an absent key is made first (fresh),
    /// or refused with a capacity error at the bound. A visit that fails takes a fresh key back.
    template <class Visit>
    auto upsert(std::string_view key, Visit&& visit)
        -> decltype(visit(std::declval<Entry&>(), true)) {
        return upsert(hashed(key), std::nullopt, visit);
    }
    /// upsert() with the time of a clock that was read already.
    template <class Visit>
    auto upsert(const Hashed& key, std::optional<SteadyTime> at, Visit&& visit)
        -> decltype(visit(std::declval<Entry&>(), true)) {
        Shard& shard = shard_of(key);
        std::unique_lock lock(shard.mutex);
        Place place = find_or_renew(shard, key, at);
        if (place.entry == nullptr) [[unlikely]] {
            auto made = insert(shard, lock, key);
            if (!made) return std::move(made).error();
            place = *made;
        }
        auto result = visit(*place.entry, place.fresh);
        if (place.fresh && !result.ok()) {
            erase(shard, key);
        } else {
            note_expiry(shard, *place.entry);
        }
        return result;
    }

    /// Calls visit(Entry*) as read() does, and removes the key if it returns a good result.
    template <class Visit>
    auto remove(std::string_view key, Visit&& visit) {
        const Hashed name = hashed(key);
        Shard& shard = shard_of(name);
        std::lock_guard lock(shard.mutex);
        auto result = visit(find_live(shard, name));
        if (result.ok()) erase(shard, name);
        return result;
    }

    /// Calls visit(Entry*) as read() does; the visit may change the entry. An entry that is
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
    /// that modify_with() made, if it is there.
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
    /// the key's as modify_with() does; both are made first if they are absent, the companion
    /// with a T. A fresh companion that has no expiry afterwards is taken back.
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
                if (beside->fresh && kept != nullptr && !kept->expires_at) {
                    erase(shard, hashed(companion));
                }
                if (!place) return std::move(place).error();
                continue;
            }
            auto result = visit(*place->entry, place->fresh, *kept);
            if (place->fresh && !result.ok()) {
                erase(shard, name);
            } else {
                note_expiry(shard, *place->entry);
            }
            if (beside->fresh && !kept->expires_at) {
                erase(shard, hashed(companion));
            } else {
                note_expiry(shard, *kept);
            }
            return result;
        }
    }

    /// Entries of several keys, while visit_all() holds the locks of all of them.
    class Places {
      public:
        /// Null when the key is absent or expired.
        Entry* find(std::size_t i) { return map_.find_live(map_.shard_of(keys_[i]), keys_[i]); }
        /// Makes an absent key, or refuses it with a capacity error at the bound.
        Result<Entry*> make(std::size_t i) { return map_.insert_without_room(keys_[i]); }
        void take_back(std::size_t i) { map_.erase(map_.shard_of(keys_[i]), keys_[i]); }

      private:
        friend class ExpiringMap;
        Places(ExpiringMap& map, std::span<const std::string_view> keys) : map_(map) {
            for (const std::string_view key : keys) keys_.push_back(hashed(key));
        }
        ExpiringMap& map_;
        std::vector<Hashed> keys_{};
    };

    /// Calls visit(Places&) under the locks of all the keys' shards, which are taken in the order of
    /// the shards. The keys are different ones.
    template <class Visit>
    auto visit_all(std::span<const std::string_view> keys, Visit&& visit) {
        // Now, because it takes the locks itself.
        if (size() + keys.size() > max_keys_) make_room();
        Places places(*this, keys);
        std::vector<Shard*> shards;
        for (const Hashed& key : places.keys_) shards.push_back(&shard_of(key));
        std::ranges::sort(shards);
        shards.erase(std::unique(shards.begin(), shards.end()), shards.end());
        std::vector<std::unique_lock<ShortLock>> locks;
        locks.reserve(shards.size());
        for (Shard* const shard : shards) locks.emplace_back(shard->mutex);
        auto result = visit(places);
        for (std::size_t i = 0; i < keys.size(); ++i) {
            if (Entry* const entry = places.find(i)) {
                note_expiry(shard_of(places.keys_[i]), *entry);
            }
        }
        return result;
    }

    /// Removes every live entry for which predicate(key, const Entry&) is true, one shard at a
    /// time; keys made or removed meanwhile may or may not be seen. Returns how many it removed.
    template <class Predicate>
    std::size_t erase_if(Predicate&& predicate) {
        std::size_t erased = 0;
        for (Shard& shard : shards_) {
            std::lock_guard lock(shard.mutex);
            const SteadyTime at = now();
            const std::size_t before = shard.entries.size();
            shard.entries.visit_all([&](const Node& node) {
                return !node.entry.expired(at) && predicate(node.key(), node.entry);
            });
            erased += before - shard.entries.size();
        }
        size_.fetch_sub(erased, std::memory_order_relaxed);
        return erased;
    }

    /// Calls visit(key, const Entry&) for each live entry of one of the shards() parts,
    /// under its lock; visit must not call into the store.
    template <class Visit>
    void visit_shard(std::size_t index, Visit&& visit) {
        Shard& shard = shards_[index];
        std::lock_guard lock(shard.mutex);
        const SteadyTime at = now();
        shard.entries.visit_all([&](const Node& node) {
            if (!node.entry.expired(at)) visit(node.key(), node.entry);
            return false;
        });
    }

    std::size_t shards() const { return shards_.size(); }
    /// Live and not yet dropped expired entries.
    std::size_t size() const { return size_.load(std::memory_order_relaxed); }
    /// Expired entries dropped so far.
    std::uint64_t swept() const;
    /// Writes refused at the bound so far.
    std::uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }

  protected:
    /// Takes back the count of one refused write.
    void uncount_refusal() { refused_.fetch_sub(1, std::memory_order_relaxed); }

  private:
    using Node = EntryTable::Node;
    // Aligned to cache lines, so that busy shards do not slow each other down.
    struct alignas(64) Shard {
        // The fields that every hit of a limiter touches come first, in one cache line.
        ShortLock mutex;
        // No entry expires before this, so that a full store does not search itself in vain.
        SteadyTime next_expiry{SteadyTime::max()};
        // The earliest expiry among entries that this round of the sweep has visited, or that have
        // changed meanwhile.
        SteadyTime round_expiry{SteadyTime::max()};
        EntryTable entries;
        std::size_t inserts{0};
        // Written under the lock only.
        std::atomic<std::uint64_t> swept{0};
    };

    Shard& shard_of(const Hashed& key) {
        // The map inside uses the low bits; the shard is chosen by high ones, so that the keys of a
        // shard still spread over its buckets.
        return shards_.data()[(key.hash >> 40) & shard_mask_];
    }
    Entry* find_live(Shard& shard, const Hashed& key);
    struct Place {
        Entry* entry;
        bool fresh;
    };
    // Returns no entry if the key is absent. An expired entry is renewed in its place.
    Place find_or_renew(Shard& shard, const Hashed& key, std::optional<SteadyTime> at) {
        Node* const found = shard.entries.find(key);
        if (found == nullptr) return Place{nullptr, false};
        Entry& entry = found->entry;
        if (!entry.expires_at || !entry.expired(at ? *at : now())) return Place{&entry, false};
        renew(shard, entry);
        return Place{&entry, true};
    }
    static void renew(Shard& shard, Entry& entry);
    // Of a key that is absent.
    Result<Place> insert(Shard& shard, std::unique_lock<ShortLock>& lock, const Hashed& key);
    Result<Place> find_or_insert(Shard& shard, std::unique_lock<ShortLock>& lock,
                                 const Hashed& key);
    Result<Entry*> insert_without_room(const Hashed& key);
    Error full(const Hashed& key);
    void erase(Shard& shard, const Hashed& key);
    void erase(Shard& shard, Node* node);
    static void count_swept(Shard& shard, std::size_t dropped) {
        shard.swept.store(shard.swept.load(std::memory_order_relaxed) + dropped,
                          std::memory_order_relaxed);
    }
    static void note_expiry(Shard& shard, const Entry& entry) {
        if (!entry.expires_at) return;
        shard.next_expiry = std::min(shard.next_expiry, *entry.expires_at);
        shard.round_expiry = std::min(shard.round_expiry, *entry.expires_at);
    }
    struct Swept {
        std::size_t met{0};
        std::size_t dropped{0};
    };
    Swept sweep(Shard& shard, SteadyTime now, std::size_t most);
    void make_room();
    void before_fork() final;
    void after_fork(bool in_child) final;

    const std::shared_ptr<const Clock> clock_;
    const bool reads_system_;
    const std::size_t max_keys_;
    const std::size_t shard_mask_;
    std::vector<Shard> shards_;
    std::atomic<std::size_t> next_shard_{0};  // Where the next search for room begins.
    std::atomic<std::size_t> size_{0};
    std::atomic<std::uint64_t> refused_{0};
};

}  // namespace hotcount::memory
