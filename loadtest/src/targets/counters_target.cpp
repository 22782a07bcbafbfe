#include <array>
#include <vector>

#include "checkers/audit.hpp"
#include "store_target.hpp"

namespace hotcount::loadtest {
namespace {

Result<CounterOptions> counter_options(const TrialSettings& settings, const Strategy& strategy) {
    CounterOptions options;
    if (strategy.way.empty()) return options;
    options.ttl = settings.life > Duration{0} ? settings.life : long_life(settings);
    if (strategy.way == "ttl") return options;
    options.method = strategy.way == "incr" ? CounterMethod::incr : CounterMethod::set_nx_incr;
    for (const Compensation compensation :
         {Compensation::none, Compensation::first, Compensation::ttl, Compensation::both}) {
        if (strategy.way == "set_nx_" + std::string{to_string(compensation)}) {
            options.compensation = compensation;
        }
    }
    return options;
}

class CountersTarget final : public StoreTarget {
  public:
    static Result<std::unique_ptr<Target>> make(const TrialSettings& settings,
                                                const Strategy& strategy, StoreHandle store) {
        HOTCOUNT_TRY_ASSIGN(const CounterOptions options, counter_options(settings, strategy));
        HOTCOUNT_TRY_ASSIGN(auto counter, store.make<Counter>(options));
        return std::unique_ptr<Target>(
            new CountersTarget(settings, strategy, std::move(store), std::move(counter)));
    }

    Driver& driver() override { return driver_; }
    UnvoteValue unvote() const override { return UnvoteValue::add_minus_one; }
    Contract contract() const override {
        const std::string where = store_.on_redis() ? "on the server" : "in this process's memory";
        std::string promise = "the add is applied " + where + ", with the value after it";
        if (expires()) promise += ", and the key expires";
        if (racy()) {
            promise +=
                " (RACY, to compare with), unless the caller dies or the key expires "
                "between two of its commands";
        }
        Contract contract = contract_of(promise);
        contract.exact = !racy();
        return contract;
    }

    Result<AuditResult> audit(const Ledger& ledger) override {
        std::vector<std::string> keys;
        for (std::uint64_t item = 1; item <= settings_.traffic.items; ++item) {
            keys.push_back("count:" + item_key(static_cast<std::int64_t>(item)));
        }
        HOTCOUNT_TRY_ASSIGN(const std::vector<std::int64_t> values, store_.integers(keys));
        const bool short_lived = expires() && settings_.life > Duration{0};
        AuditResult result =
            short_lived ? audit_mortal_counters(ledger, values) : audit_counters(ledger, values);
        if (expires()) HOTCOUNT_TRY(count_keys_without_ttl(racy(), result));
        return result;
    }

  private:
    CountersTarget(const TrialSettings& settings, const Strategy& strategy, StoreHandle store,
                   std::shared_ptr<Counter> counter)
        : StoreTarget(settings, strategy, std::move(store)),
          driver_(std::move(counter), settings.timeout) {}

    bool expires() const { return !strategy_.way.empty(); }
    bool racy() const { return expires() && strategy_.way != "ttl"; }

    CounterDriver driver_;
};

}  // namespace

Result<std::unique_ptr<Target>> make_counters_target(const TrialSettings& settings,
                                                     const Strategy& strategy, StoreHandle store) {
    return CountersTarget::make(settings, strategy, std::move(store));
}

}  // namespace hotcount::loadtest
