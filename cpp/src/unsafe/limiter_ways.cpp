#include "limiter_ways.hpp"

#include <algorithm>

namespace hotcount {
namespace {

constexpr std::int64_t kSecond = 1'000'000;

class SeedBackend final : public LimiterBackend {
  public:
    SeedBackend(std::unique_ptr<SeedSteps> steps, Algorithm algorithm, const Plan& plan)
        : steps_(std::move(steps)), algorithm_(algorithm), plan_(plan) {}

    std::string_view store_prefix() const override { return steps_->store_prefix(); }

    Result<Verdict> decide(const std::string& key, std::int64_t, bool take, std::string_view,
                           Timeout timeout) override {
        const std::string name = counter_name(key);
        HOTCOUNT_TRY_ASSIGN(std::int64_t current, steps_->get(name, timeout));
        // As the page has it: it admits one more than the limit.
        const bool allowed = current <= plan_.limit;
        if (take && allowed) {
            HOTCOUNT_TRY(count(name, timeout));
            ++current;
        }
        HOTCOUNT_TRY_ASSIGN(const std::int64_t life, steps_->life(name, timeout));
        // The page says nothing of waiting. A key without an expiry is never admitted again.
        std::optional<std::int64_t> retry_after;
        if (life >= 0) retry_after = std::max<std::int64_t>(life, 1);
        if (algorithm_ == Algorithm::per_second_key) retry_after = kSecond;
        if (allowed) retry_after = 0;
        return Verdict{allowed, std::max<std::int64_t>(plan_.limit - current, 0), retry_after,
                       std::max<std::int64_t>(life, 0)};
    }

    Result<void> check_async() const override { return steps_->check_async(); }

    Result<void> reset(const std::string& key, Timeout timeout) override {
        return steps_->remove(counter_name(key), timeout);
    }

    Result<std::vector<std::string>> entries(const std::string&, Timeout) override {
        return std::vector<std::string>{};
    }

  private:
    std::string counter_name(const std::string& key) const {
        if (algorithm_ != Algorithm::per_second_key) return key;
        return key + ":" + std::to_string(steps_->client_seconds());
    }

    Result<void> count(const std::string& key, Timeout timeout) {
        const std::int64_t seconds = plan_.period / kSecond;
        if (algorithm_ == Algorithm::per_second_key) {
            return steps_->incr_and_expire_10(key, timeout);
        }
        if (algorithm_ == Algorithm::incr_expire) {
            return steps_->incr_expire_script(key, seconds, timeout);
        }
        HOTCOUNT_TRY_ASSIGN(const std::int64_t value, steps_->incr(key, timeout));
        if (value == 1) return steps_->expire(key, seconds, timeout);
        return {};
    }

    std::unique_ptr<SeedSteps> steps_;
    Algorithm algorithm_;
    Plan plan_;
};

}  // namespace

std::unique_ptr<LimiterBackend> make_seed_backend(std::unique_ptr<SeedSteps> steps,
                                                  Algorithm algorithm, const Plan& plan) {
    return std::make_unique<SeedBackend>(std::move(steps), algorithm, plan);
}

}  // namespace hotcount
