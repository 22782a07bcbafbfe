// An in-process store: sharded, expiring, bounded. The embedded default, and the model that the
// contract tests hold servers against.
//
// Stored values live as long as the process; a forked child gets a copy of its own. Thread-safe. A
// call costs a hash and a mutex, and never waits for anything else. detail/memory/expiring_map.hpp
// describes how entries are kept and when expired ones are dropped.
//
// Example, the body of a function that returns Result<void>:
//
//   @code
//   memory::StoreOptions options;
//   options.max_keys = 100'000;
//   HOTCOUNT_TRY_ASSIGN(const auto store, memory::Store::make(options));
//   HOTCOUNT_TRY_ASSIGN(const auto counter, Counter::make(store));
//   HOTCOUNT_TRY(counter->add("page:home"));
//   std::cout << store->stats().keys << " of " << store->stats().max_keys << '\n';  // 1 of 100000
//   // All callers in this process that use the name share one store:
//   HOTCOUNT_TRY_ASSIGN(const auto shared, memory::named_store("sessions"));
//   std::cout << shared->size() << '\n';  // 0
//   @endcode
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/memory/expiring_map.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace hotcount::memory {

/// The effect of a full store on a new key of a limiter. No live entry is dropped to make room:
/// otherwise a denied client could touch other keys until the store had dropped its denied key.
enum class WhenFull : std::uint8_t {
    admit,   ///< The hit is admitted and not remembered; its decision and the stats show that.
    refuse,  ///< The hit fails with a capacity error.
};
std::string_view to_string(WhenFull when_full);
/// An unknown name is a config error that lists the known ones.
Result<WhenFull> parse_when_full(std::string_view name);

struct StoreOptions {
    /// Most keys held at once. At the bound expired keys are dropped first. If the next 1,024
    /// entries have none, a new key is refused with a capacity error (a limiter's: as `when_full`
    /// says); the next call looks further on. More: 120 bytes a key and its full length; a sorted
    /// set is two keys, 630 bytes with one member and 140 for each more.
    std::size_t max_keys{1'000'000};
    /// A client that floods the store with keys passes unlimited with admit; with refuse it keeps
    /// all new clients out.
    WhenFull when_full{WhenFull::admit};
    /// Put before every key, as a Redis store does; keeps two applications apart.
    std::string prefix{};
    /// How many separately locked parts, rounded up to a power of two. More: fewer collisions of
    /// busy threads; each costs a map and a mutex.
    std::size_t shards{64};
    /// Where the time for expiry comes from.
    std::shared_ptr<const Clock> clock{system_clock()};
};

/// For users: make(), options() and stats(). The functions of ExpiringMap are for counters,
/// limiters and sets.
class Store final : public ExpiringMap {
  public:
    static Result<std::shared_ptr<Store>> make(StoreOptions options = {});
    explicit Store(StoreOptions options);  // Use make(), which checks the options.

    const StoreOptions& options() const { return options_; }
    /// The wall clock minus the steady clock when the store was made. now() plus this is the
    /// store's time since the Unix epoch. Later steps of the wall clock do not change it.
    Duration epoch() const { return epoch_; }

    struct Stats {
        std::size_t keys;         ///< Keys held now, including expired ones not yet dropped.
        std::size_t max_keys;     ///< The bound.
        std::uint64_t swept;      ///< Expired entries dropped so far.
        std::uint64_t refused;    ///< Writes refused at the bound so far, without untracked hits.
        std::uint64_t untracked;  ///< Hits admitted at the bound without being remembered.
    };
    Stats stats() const;
    /// Whether a hit that was refused with this error is admitted untracked. Counts it if so.
    bool admits_untracked(const Error& error);

  private:
    StoreOptions options_;
    const Duration epoch_;
    std::atomic<std::uint64_t> untracked_{0};
};

/// The store that `memory://NAME` names in this process, made on first use and dropped with its
/// last holder. Options count only when the store is made.
Result<std::shared_ptr<Store>> named_store(std::string_view name, StoreOptions options = {});

}  // namespace hotcount::memory
