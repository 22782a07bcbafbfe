#include <array>
#include <vector>

#include "checkers/audit.hpp"
#include "plain_ways.hpp"
#include "store_target.hpp"

namespace hotcount::loadtest {
namespace {

std::vector<std::string> counter_keys(std::uint64_t items) {
    std::vector<std::string> keys;
    for (std::uint64_t item = 1; item <= items; ++item) {
        keys.push_back("count:" + item_key(static_cast<std::int64_t>(item)));
    }
    return keys;
}

CounterOptions counter_options(const TrialSettings& settings, const Strategy& strategy) {
    CounterOptions options;
    if (!strategy.expires) return options;
    options.ttl = settings.life > Duration{0} ? settings.life : long_life(settings);
    return options;
}

class CountersTarget final : public StoreTarget {
  public:
    static Result<std::unique_ptr<Target>> make(const TrialSettings& settings,
                                                const Strategy& strategy, StoreHandle store) {
        const CounterOptions options = counter_options(settings, strategy);
        HOTCOUNT_TRY_ASSIGN(auto counter, store.make<Counter>(options));
        auto driver = make_driver(std::move(counter), settings.timeout);
        if (strategy.racy) {
            driver = std::make_unique<PlainCounterDriver>(
                std::move(driver), store.client(), strategy.way, *options.ttl, settings.timeout);
        }
        return std::unique_ptr<Target>(
            new CountersTarget(settings, strategy, std::move(store), std::move(driver)));
    }

    Driver& driver() override { return *driver_; }
    UnvoteValue unvote() const override { return UnvoteValue::add_minus_one; }
    Contract contract() const override {
        const std::string where = store_.on_redis() ? "on the server" : "in this process's memory";
        std::string promise = "the add is applied " + where + ", with the value after it";
        if (expires()) promise += ", and the key expires";
        if (strategy_.racy) {
            promise +=
                " (RACY, to compare with), unless the caller dies or the key expires "
                "between two of its commands";
        }
        Contract contract = contract_of(promise);
        contract.exact = !strategy_.racy;
        return contract;
    }

    Result<AuditResult> audit(const Ledger& ledger) override {
        HOTCOUNT_TRY_ASSIGN(const auto values,
                            store_.integers(counter_keys(settings_.traffic.items)));
        const bool short_lived = expires() && settings_.life > Duration{0};
        AuditResult result =
            short_lived ? audit_mortal_counters(ledger, values) : audit_counters(ledger, values);
        if (expires()) HOTCOUNT_TRY(count_keys_without_ttl(strategy_.racy, result));
        return result;
    }

    /// The values of keys that expire under the load are no sums.
    std::optional<AnswerRules> answer_rules(const Ledger& /*ledger*/) const override {
        if (expires() && settings_.life > Duration{0}) return {};
        AnswerRules rules = rules_for(strategy_, settings_.traffic.items);
        rules.may_be_wrong = strategy_.racy;
        return rules;
    }

  private:
    CountersTarget(const TrialSettings& settings, const Strategy& strategy, StoreHandle store,
                   std::unique_ptr<Driver> driver)
        : StoreTarget(settings, strategy, std::move(store)), driver_(std::move(driver)) {}

    bool expires() const { return strategy_.expires; }

    std::unique_ptr<Driver> driver_;
};

/// A counter whose adds wait in a queue while its Redis is away.
class RetryTarget final : public StoreTarget {
  public:
    static Result<std::unique_ptr<Target>> make(const TrialSettings& settings,
                                                const Strategy& strategy, StoreHandle store) {
        RetryQueue queue;
        queue.max_items = kMostWaiting;
        HOTCOUNT_TRY_ASSIGN(auto counter, store.make<Counter>(CounterOptions{}));
        HOTCOUNT_TRY_ASSIGN(auto retrying, RetryingCounter::make(store.client(), {}, queue));
        return std::unique_ptr<Target>(new RetryTarget(settings, strategy, std::move(store),
                                                       std::move(counter), std::move(retrying)));
    }

    Driver& driver() override { return *driver_; }
    UnvoteValue unvote() const override { return UnvoteValue::add_minus_one; }
    Contract contract() const override {
        return contract_of(
            "the add is applied on the server, with the value after it, or waits in "
            "this process to be applied once");
    }

    Result<AuditResult> audit(const Ledger& ledger) override {
        const auto queued = static_cast<std::uint64_t>(retrying_->stats().queued);
        (void)retrying_->close(kSetUpTimeout);  // Adds that still wait then are missing below.
        HOTCOUNT_TRY_ASSIGN(const auto values,
                            store_.integers(counter_keys(settings_.traffic.items)));
        AuditResult result = audit_counters(ledger, values, false);
        result.queued = queued;
        return result;
    }

    std::optional<AnswerRules> answer_rules(const Ledger& /*ledger*/) const override {
        return rules_for(strategy_, settings_.traffic.items);
    }

  private:
    // An outage of a minute at 16,000 adds a second.
    static constexpr std::size_t kMostWaiting = 1'000'000;

    RetryTarget(const TrialSettings& settings, const Strategy& strategy, StoreHandle store,
                std::shared_ptr<Counter> counter, std::shared_ptr<RetryingCounter> retrying)
        : StoreTarget(settings, strategy, std::move(store)),
          retrying_(retrying),
          driver_(make_driver(std::move(retrying), std::move(counter), settings.timeout)) {}

    std::shared_ptr<RetryingCounter> retrying_;
    std::unique_ptr<Driver> driver_;
};

}  // namespace

Result<std::unique_ptr<Target>> make_counters_target(const TrialSettings& settings,
                                                     const Strategy& strategy, StoreHandle store) {
    if (strategy.way == "retry") return RetryTarget::make(settings, strategy, std::move(store));
    return CountersTarget::make(settings, strategy, std::move(store));
}

}  // namespace hotcount::loadtest
