// The three limiters of the Redis documentation's INCR page, step by step as it has them, holes
// included (limiter.hpp says which). A store gives the steps; what happens between two of them,
// and whether the next one ever happens, is where the holes are.
#pragma once

#include <memory>

#include "limiter/backend.hpp"

namespace hotcount {

/// The commands that those ways are made of. Each is one step: nothing holds two together.
class SeedSteps {
  public:
    virtual ~SeedSteps() = default;

    virtual std::string_view store_prefix() const = 0;
    /// An error where the steps below wait.
    virtual Result<void> check_async() const { return {}; }
    /// The CALLER's clock, in seconds since the epoch.
    virtual std::int64_t client_seconds() const = 0;
    virtual Result<std::int64_t> get(const std::string& key, Timeout timeout) = 0;
    virtual Result<std::int64_t> incr(const std::string& key, Timeout timeout) = 0;
    virtual Result<void> expire(const std::string& key, std::int64_t seconds, Timeout timeout) = 0;
    /// MULTI, INCR, EXPIRE 10, EXEC.
    virtual Result<void> incr_and_expire_10(const std::string& key, Timeout timeout) = 0;
    /// The page's script.
    virtual Result<void> incr_expire_script(const std::string& key, std::int64_t seconds,
                                            Timeout timeout) = 0;
    /// Microseconds until the key expires; negative where it is absent or never does.
    virtual Result<std::int64_t> life(const std::string& key, Timeout timeout) = 0;
    virtual Result<void> remove(const std::string& key, Timeout timeout) = 0;
};

std::unique_ptr<LimiterBackend> make_seed_backend(std::unique_ptr<SeedSteps> steps,
                                                  Algorithm algorithm, const Plan& plan);

}  // namespace hotcount
