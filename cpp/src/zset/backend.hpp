// The interface of LiveSets to a store. Keys are checked and in full, no score is NaN. Each call
// ends with its completion; AsyncCall says whether the caller waits.
#pragma once

#include <hotcount/detail/redis/channel.hpp>
#include <hotcount/live_sets.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

class WaitingCalls;

/// How long versions outlive their set. A write that comes later is not recognized as stale. Until
/// then the versions cost the memory of each member's name.
inline constexpr Duration kVersionsStay = std::chrono::hours{1};

/// The names and terms of one build.
struct Build {
    std::string key;
    std::string companion;
    std::string token;  ///< Identifies the builder; without spaces.
    Duration ttl;
    Duration lease;
};
struct BuildMember {
    std::string member;
    double score;
    std::optional<std::int64_t> version;
};

/// The steps of a build in one store. A lost lease is a lease_lost error.
class Builds {
  public:
    virtual ~Builds() = default;
    virtual Result<void> begin(const Build& build, Timeout timeout) = 0;
    /// Adds a chunk and renews the lease. `chunk` counts from 1; a repeated chunk is not added
    /// again. Without members it only renews.
    virtual Result<void> add(const Build& build, std::uint64_t chunk,
                             std::span<const BuildMember> members, Timeout timeout) = 0;
    /// Copies a part of the set's versions into the build; returns the next cursor, "0" at the end.
    virtual Result<std::string> carry(const Build& build, const std::string& cursor,
                                      Timeout timeout) = 0;
    virtual Result<void> publish(const Build& build, std::uint64_t chunks, Timeout timeout) = 0;
    virtual Result<void> abandon(const Build& build, Timeout timeout) = 0;
};
Error lease_lost(const Build& build, std::string_view why);

class LiveSetsBackend {
  public:
    struct Element {
        std::string key;
        std::string companion;  ///< Empty if the key can have no companion.
        std::string member;
        double score{0};
        std::optional<std::int64_t> version{};  ///< Never without a companion.
    };
    using Upserts = std::vector<Result<Upsert>>;
    using Members = std::vector<ScoredMember>;
    using Rank = std::optional<std::int64_t>;

    LiveSetsBackend(LiveSetsOptions options, std::string_view store_prefix)
        : options_(std::move(options)), before_key_(store_prefix) {
        if (!options_.prefix.empty()) before_key_ += options_.prefix + ":";
    }
    virtual ~LiveSetsBackend() = default;

    /// The AsyncCall of a caller that waits: with it the calls below have completed when they
    /// return.
    virtual AsyncCall waiting(Timeout timeout) const { return {nullptr, timeout, nullptr, true}; }

    /// Results by index; `batch` elements, at most kMaxBatch, in one step.
    virtual void upsert(std::vector<Element> elements, std::size_t batch, const AsyncCall& call,
                        Completion<Upserts> done) = 0;
    /// One upsert, which may share a round trip with others that wait.
    virtual void upsert_one(Element element, const AsyncCall& call, Completion<Upsert> done) = 0;
    /// `which`: as above; its score does not count.
    virtual void remove(const Element& which, const AsyncCall& call, Completion<Upsert> done) = 0;
    virtual void range(const std::string& key, std::int64_t start, std::int64_t stop,
                       const AsyncCall& call, Completion<Members> done) = 0;
    virtual void rank(const std::string& key, std::string_view member, const AsyncCall& call,
                      Completion<Rank> done) = 0;
    /// `companion` empty: the key cannot have one.
    virtual void create(const std::string& key, const std::string& companion, Duration ttl,
                        std::span<const ScoredMember> members, const AsyncCall& call,
                        Completion<void> done) = 0;
    /// The report's keys are in full.
    virtual void sweep(const std::string& pattern, bool dry_run, const AsyncCall& call,
                       Completion<SweepReport> done) = 0;

    virtual std::shared_ptr<Builds> builds() const = 0;
    /// The end of a call with this timeout.
    virtual Deadline deadline(Timeout timeout) const = 0;
    /// Threads for calls that block; null if no call does.
    virtual WaitingCalls* waiting_calls() = 0;

    const LiveSetsOptions& options() const { return options_; }
    /// The prefix of each key in the store.
    const std::string& before_key() const { return before_key_; }
    Duration gate() const { return options_.gate.value_or(Duration{0}); }

  private:
    LiveSetsOptions options_;
    std::string before_key_;
};

std::unique_ptr<LiveSetsBackend> make_memory_sets(std::shared_ptr<memory::Store> store,
                                                  LiveSetsOptions options);
std::unique_ptr<LiveSetsBackend> make_redis_sets(std::shared_ptr<redis::Client> client,
                                                 LiveSetsOptions options);
std::shared_ptr<Builds> make_redis_builds(std::shared_ptr<redis::Client> client);
std::shared_ptr<Builds> make_memory_builds(std::shared_ptr<memory::Store> store);

namespace zset {

// -- names of helper keys, and patterns -----------------------------------------------------------

/// The key that holds a set's versions, in the set's slot of a cluster: see key_beside().
Result<std::string> companion_key(std::string_view key);

/// The key that marks a set that has had versions; in the slot of its companion.
std::string marker_key(std::string_view companion);

Result<void> check_member(std::string_view member);  ///< 1 to 1000 bytes.
Result<void> check_score(double score);              ///< Not NaN.

/// The keys of the set under construction and of its hash; in the slot of the companion.
std::string build_key(std::string_view companion);
std::string build_hash_key(std::string_view companion);

/// The pattern that matches `text` alone.
std::string escape_pattern(std::string_view text);

/// Matches as Redis does: * any bytes, ? one, [abc] [a-c] [^a] one of a set, \ the next one
/// literally.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace zset

}  // namespace hotcount
