// What LiveSets asks of a store. Keys come checked and in full, no score is NaN. Each call completes;
// whether its caller waits, AsyncCall says.
#pragma once

#include <hotcount/detail/redis/channel.hpp>
#include <hotcount/live_sets.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

class WaitingCalls;

/// How long versions outlive their set: a write that is later than that is not found stale. They cost
/// the memory of each member's name until then.
inline constexpr Duration kVersionsStay = std::chrono::hours{1};

/// The names and terms of one build.
struct Build {
    std::string key;
    std::string companion;
    std::string token;  ///< The builder's own, without spaces.
    Duration ttl;
    Duration lease;
};
struct BuildMember {
    std::string member;
    double score;
    std::optional<std::int64_t> version;
};

/// The steps of a build, as a store has them. A lost lease is a lease_lost error.
class Builds {
  public:
    virtual ~Builds() = default;
    virtual Result<void> begin(const Build& build, Timeout timeout) = 0;
    /// `chunk` counts from 1; one that was added already is not added again. Renews the lease; without
    /// members it does nothing else.
    virtual Result<void> add(const Build& build, std::uint64_t chunk,
                             std::span<const BuildMember> members, Timeout timeout) = 0;
    /// A part of the versions that the set knew before; returns where the next begins, "0" at the end.
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
        std::string companion;  ///< Empty if the key can have none.
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

    /// How a caller who waits calls the others: with this they have completed when they return.
    virtual AsyncCall waiting(Timeout timeout) const { return {nullptr, timeout, nullptr, true}; }

    /// Results by index; `batch` of them, at most kMaxBatch, in one go.
    virtual void upsert(std::vector<Element> elements, std::size_t batch, const AsyncCall& call,
                        Completion<Upserts> done) = 0;
    /// One, which may travel with others that wait beside it.
    virtual void upsert_one(Element element, const AsyncCall& call, Completion<Upsert> done) = 0;
    /// `which`: key, member, companion and version as above.
    virtual void remove(const Element& which, const AsyncCall& call, Completion<Upsert> done) = 0;
    virtual void range(const std::string& key, std::int64_t start, std::int64_t stop,
                       const AsyncCall& call, Completion<Members> done) = 0;
    virtual void rank(const std::string& key, std::string_view member, const AsyncCall& call,
                      Completion<Rank> done) = 0;
    /// An empty companion: the key cannot have one.
    virtual void create(const std::string& key, const std::string& companion, Duration ttl,
                        std::span<const ScoredMember> members, const AsyncCall& call,
                        Completion<void> done) = 0;
    /// The report's keys are in full.
    virtual void sweep(const std::string& pattern, bool dry_run, const AsyncCall& call,
                       Completion<SweepReport> done) = 0;

    virtual std::shared_ptr<Builds> builds() const = 0;
    /// By when a call ends that has this timeout.
    virtual Deadline deadline(Timeout timeout) const = 0;
    /// Threads for calls that wait; null if none does.
    virtual WaitingCalls* waiting_calls() = 0;

    const LiveSetsOptions& options() const { return options_; }
    /// What stands before each key in the store.
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

// -- the rules about names: which key stands beside which, and which keys a pattern means ----------

/// The name of the key that holds a set's versions, in the set's slot of a cluster: see key_beside().
Result<std::string> companion_key(std::string_view key);

/// The name of the key that says a set has had versions, beside its companion in the same slot.
std::string marker_key(std::string_view companion);

Result<void> check_member(std::string_view member);  ///< 1 to 1000 bytes.
Result<void> check_score(double score);              ///< Not NaN.

/// The names of the set that is being built and of its hash, beside the companion in the same slot.
std::string build_key(std::string_view companion);
std::string build_hash_key(std::string_view companion);

/// The pattern that matches exactly `text`.
std::string escape_pattern(std::string_view text);

/// As Redis matches: * any bytes, ? one, [abc] [a-c] [^a] one of, \ takes the next as it is.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace zset

}  // namespace hotcount
