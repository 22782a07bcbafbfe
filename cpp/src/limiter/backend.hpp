// What Limiter asks of a store. Keys come checked and in full, costs 1 or more.
#pragma once

#include <hotcount/detail/redis/channel.hpp>
#include <hotcount/limiter.hpp>
#include <memory>

namespace hotcount {

class LimiterBackend {
  public:
    virtual ~LimiterBackend() = default;

    virtual std::string_view store_prefix() const = 0;
    /// With `take` false only looks.
    virtual Result<Verdict> decide(const std::string& key, std::int64_t cost, bool take,
                                   std::string_view who, Timeout timeout) = 0;
    /// Results by index; one by one where a backend has nothing better.
    virtual std::vector<Result<Verdict>> take_many(std::span<const std::string> keys,
                                                   std::span<const std::int64_t> costs,
                                                   std::span<const std::string_view> who,
                                                   Timeout timeout) {
        std::vector<Result<Verdict>> verdicts;
        verdicts.reserve(keys.size());
        for (std::size_t i = 0; i < keys.size(); ++i) {
            verdicts.push_back(decide(keys[i], costs[i], true, who[i], timeout));
        }
        return verdicts;
    }
    virtual Result<void> reset(const std::string& key, Timeout timeout) = 0;
    virtual Result<std::vector<std::string>> entries(const std::string& key, Timeout timeout) = 0;

    // The same without waiting. What stands here is for backends that never wait: memory.

    /// Whether the calls below may be made.
    virtual Result<void> check_async() const { return {}; }
    virtual void decide_async(const std::string& key, std::int64_t cost, bool take,
                              std::string_view who, const AsyncCall&, Completion<Verdict> done) {
        done(decide(key, cost, take, who, {}));
    }
    virtual void take_many_async(std::vector<std::string> keys, std::vector<std::int64_t> costs,
                                 std::span<const std::string_view> who, const AsyncCall&,
                                 Completion<std::vector<Result<Verdict>>> done) {
        done(take_many(keys, costs, who, {}));
    }
    virtual void reset_async(const std::string& key, const AsyncCall&, Completion<void> done) {
        done(reset(key, {}));
    }
    virtual void entries_async(const std::string& key, const AsyncCall&,
                               Completion<std::vector<std::string>> done) {
        done(entries(key, {}));
    }
};

/// The options as numbers, for the algorithm they name; checks all of them.
Result<Plan> make_plan(const LimiterOptions& options);

std::unique_ptr<LimiterBackend> make_memory_backend(std::shared_ptr<memory::Store> store,
                                                    Algorithm algorithm, const Plan& plan);
std::unique_ptr<LimiterBackend> make_redis_backend(std::shared_ptr<redis::Client> client,
                                                   Algorithm algorithm, const Plan& plan);

/// The error for a key that holds something else.
Error no_limit_state(std::string_view key);

}  // namespace hotcount
