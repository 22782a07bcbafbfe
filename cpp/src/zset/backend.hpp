// What LiveSets asks of a store. Keys come checked and in full, no score is NaN.
#pragma once

#include <hotcount/zset/live_sets.hpp>
#include <memory>

namespace hotcount {

class LiveSetsBackend {
  public:
    struct Element {
        std::string key;
        std::string companion;  ///< Empty where the key can have none.
        std::string_view member;
        double score;
        std::optional<std::int64_t> version;  ///< Never without a companion.
    };

    explicit LiveSetsBackend(LiveSetsOptions options) : options_(std::move(options)) {}
    virtual ~LiveSetsBackend() = default;

    virtual std::string_view store_prefix() const = 0;
    virtual Duration default_timeout() const = 0;
    /// Results by index; at most kMaxBatch elements.
    virtual std::vector<Result<Upsert>> upsert(std::span<const Element> elements,
                                               Timeout timeout) = 0;
    /// As in Element.
    virtual Result<Upsert> remove(const std::string& key, std::string_view member,
                                  const std::string& companion, std::optional<std::int64_t> version,
                                  Timeout timeout) = 0;
    virtual Result<std::vector<ScoredMember>> range(const std::string& key, std::int64_t start,
                                                    std::int64_t stop, Timeout timeout) = 0;
    virtual Result<std::optional<std::int64_t>> rank(const std::string& key,
                                                     std::string_view member, Timeout timeout) = 0;
    /// An empty companion: the key cannot have one.
    virtual Result<void> create(const std::string& key, const std::string& companion, Duration ttl,
                                std::span<const ScoredMember> members, Timeout timeout) = 0;
    /// The report's keys are in full.
    virtual Result<SweepReport> sweep(const std::string& pattern, bool dry_run,
                                      Timeout timeout) = 0;

    const LiveSetsOptions& options() const { return options_; }
    Duration gate() const { return options_.gate.value_or(Duration{0}); }

  private:
    LiveSetsOptions options_;
};

std::unique_ptr<LiveSetsBackend> make_memory_sets(std::shared_ptr<memory::Store> store,
                                                  LiveSetsOptions options);
std::unique_ptr<LiveSetsBackend> make_redis_sets(std::shared_ptr<redis::Client> client,
                                                 LiveSetsOptions options);

}  // namespace hotcount
