// A run's own part of a store. The limiters, counters and sets under test are made on it, and the
// audits read it.
//
// The audits read with commands of their own, not through the object that they check. In memory
// the store is the run's own, named by the run's prefix; on Redis every key begins with the prefix.
#pragma once

#include <cstdint>
#include <hotcount/live_sets.hpp>
#include <hotcount/memory.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "load/settings.hpp"

namespace hotcount::loadtest {

/// The time on the steady clock, which memory stores use.
std::int64_t steady_ns();

class StoreHandle {
  public:
    /// `store` is memory or redis.
    static Result<StoreHandle> open(const TrialSettings& settings, StrategyStore store);

    template <class Concept, class Options>
    Result<std::shared_ptr<Concept>> make(Options options) const {
        return redis_ ? Concept::make(redis_, std::move(options))
                      : Concept::make(memory_, std::move(options));
    }

    /// For votes that are counted here.
    VoteCache cache() const { return redis_ ? VoteCache{redis_} : VoteCache{memory_}; }

    /// Where it is, in one line for people.
    const std::string& place() const { return place_; }
    bool on_redis() const { return redis_ != nullptr; }
    const std::shared_ptr<redis::Client>& client() const { return redis_; }
    /// The number of commands that the server has run since it started, for all clients, commands
    /// of scripts included; 0 in memory, and if the server does not tell.
    std::uint64_t commands() const;

    /// The difference to add to this machine's monotonic clock to get the store's wall clock.
    struct Offset {
        std::int64_t ns;
        std::int64_t error_ns;  ///< Either way.
    };
    Result<Offset> clock_offset() const;

    /// The integers under the keys (without the run's prefix), 0 if absent.
    Result<std::vector<std::int64_t>> integers(std::span<const std::string> keys) const;
    /// How many of the run's keys have no expiry; `example` gets one of them.
    Result<std::uint64_t> keys_without_ttl(std::string& example) const;
    struct SetState {
        bool expires;
        std::vector<ScoredMember> members;
    };
    /// The sorted set under the key (without the run's prefix); empty if there is no such set.
    Result<std::optional<SetState>> set_at(const std::string& key) const;
    /// Removes the run's keys. In memory they go with the store.
    Result<void> remove_keys() const;

  private:
    StoreHandle() = default;
    Result<redis::Reply> command(std::initializer_list<std::string_view> words) const;
    /// Calls visit(page of full keys) until all of the run's keys were seen.
    template <class Visit>
    Result<void> scan(const Visit& visit) const;
    template <class Visit>
    Result<void> scan(const std::string& pattern, const Visit& visit) const;
    template <class Visit>
    static Result<void> scan_one(redis::Client& server, const std::string& pattern,
                                 const Visit& visit);

    std::shared_ptr<memory::Store> memory_{};
    /// The servers that hold the keys: the single server, or the primaries of a cluster.
    Result<std::vector<std::shared_ptr<redis::Client>>> primaries() const;

    std::shared_ptr<redis::Client> redis_{};
    /// For commands that name no key: the server, or a node of the cluster.
    std::shared_ptr<redis::Client> node_{};
    std::string url_{};
    std::string prefix_{};
    std::string place_{};
};

}  // namespace hotcount::loadtest
