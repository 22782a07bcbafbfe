#include <algorithm>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>

#include "algorithm.hpp"
#include "limiter/wrapped_backend.hpp"

namespace hotcount {
namespace {

Result<void> check_no_table(const LimiterOptions& options) {
    if (options.table == LimiterOptions::kTable) return {};
    return bad_option("table", "is for databases: other stores have none");
}

bool is_plain_key(std::string_view key, KeyRule rule) {
    return rule == KeyRule::any_bytes && !key.empty() && key.size() <= kMaxKeyBytes;
}

Result<void> check_limit_key(std::string_view key, KeyRule rule) {
    if (is_plain_key(key, rule)) return {};
    // What encode_plain() adds does not count.
    return check_key(key.starts_with("%25") ? key.substr(2) : key, rule);
}

Result<Decision> hit_plainly(LimiterBackend& backend, std::string_view prefix, std::string_view key,
                             std::int64_t cost, Timeout timeout, const LimiterOptions& options) {
    Outcome outcome;
    Result<Decision> decided{Decision{}};
    if (auto hit = backend.hit(prefix, key, cost, timeout, outcome); hit) [[likely]] {
        fill_soon(*decided, outcome, options.rates, options.shadow);
    } else {
        decided = std::move(hit).error();
    }
    return decided;
}

std::int64_t least_burst(const LimiterOptions& options) {
    return std::ranges::min(options.rates, {}, &Rate::burst).burst;
}

// What a call that takes what fits answers.
std::int64_t how_much(const Outcome& outcome, std::int64_t n, bool shadow) {
    if (shadow) return n;
    // A rate that has room says how much although another has none.
    return outcome.allowed ? outcome.taken : 0;
}

}  // namespace

Result<std::shared_ptr<Limiter>> Limiter::make(std::shared_ptr<memory::Store> store,
                                               LimiterOptions options) {
    HOTCOUNT_TRY(check_limiter_options(options));
    HOTCOUNT_TRY(check_no_table(options));
    return make_with(
        [store = std::move(store)](const LimiterOptions& chosen) {
            return find_algorithm(chosen.algorithm).over_memory(store, chosen);
        },
        std::move(options));
}

Result<std::shared_ptr<Limiter>> Limiter::make(std::shared_ptr<redis::Client> client,
                                               LimiterOptions options) {
    HOTCOUNT_TRY(check_limiter_options(options));
    HOTCOUNT_TRY(check_no_table(options));
    auto cache = make_deny_cache(options);
    auto leases = make_leases(options);
    return make_with(
        [client = std::move(client), cache = std::move(cache), leases = std::move(leases)](
            const LimiterOptions& chosen) -> Result<std::unique_ptr<LimiterBackend>> {
            HOTCOUNT_TRY_ASSIGN(auto backend,
                                find_algorithm(chosen.algorithm).over_redis(client, chosen));
            backend = with_leases(std::move(backend), leases, chosen);
            HOTCOUNT_TRY_ASSIGN(backend, with_outage_policy(std::move(backend), client, chosen));
            return with_deny_cache(std::move(backend), cache);
        },
        std::move(options));
}

Result<std::shared_ptr<Limiter>> Limiter::make_with(LimiterBackendMaker maker,
                                                    LimiterOptions options) {
    HOTCOUNT_TRY_ASSIGN(auto backend, maker(options));
    return std::make_shared<Limiter>(std::move(backend), std::move(options),
                                     std::make_shared<const LimiterBackendMaker>(std::move(maker)));
}

Result<std::shared_ptr<Limiter>> Limiter::with_rates(std::vector<Rate> rates) const {
    LimiterOptions options = options_;
    options.rates = std::move(rates);
    HOTCOUNT_TRY(check_limiter_options(options));
    HOTCOUNT_TRY_ASSIGN(auto backend, (*maker_)(options));
    return std::make_shared<Limiter>(std::move(backend), std::move(options), maker_);
}

Limiter::Limiter(std::unique_ptr<LimiterBackend> backend, LimiterOptions options,
                 std::shared_ptr<const LimiterBackendMaker> maker)
    : options_(std::move(options)),
      info_(info(options_.algorithm)),
      rates_(std::make_shared<const std::vector<Rate>>(options_.rates)),
      limit_(least_burst(options_)),
      prefix_(key_prefix(options_)),
      backend_(std::move(backend)),
      key_rule_(backend_->key_rule()),
      maker_(std::move(maker)) {}
Limiter::~Limiter() = default;

Result<void> LimiterBackend::hit(std::string_view prefix, std::string_view key, std::int64_t cost,
                                 Timeout timeout, Outcome& outcome) {
    HOTCOUNT_TRY_ASSIGN(outcome,
                        decide(full_key(store_prefix(), prefix, key), cost, Take::all, timeout));
    return {};
}

Result<std::string> Limiter::full(std::string_view key) const {
    HOTCOUNT_TRY(check_limit_key(key, key_rule_));
    return full_key(backend_->store_prefix(), prefix_, key);
}

Result<void> Limiter::check(std::int64_t cost) const {
    if (cost < 1) {
        return make_error(ErrorCode::config,
                          "cost is " + std::to_string(cost) + "; it takes 1 or more");
    }
    return {};
}

Result<void> Limiter::check_n(std::int64_t n) const {
    if (n >= 1) return {};
    return make_error(ErrorCode::config, "n is " + std::to_string(n) + "; it takes 1 or more");
}

Result<void> Limiter::check_block(Duration duration) const {
    if (duration > Duration{0} && duration <= Rate::kMaxPeriod) return {};
    return make_error(ErrorCode::config,
                      "seconds is " +
                          std::to_string(std::chrono::duration<double>(duration).count()) +
                          "; it takes more than 0 seconds and 366 days at most");
}

Result<Decision> Limiter::hit(std::string_view key, std::int64_t cost, Timeout timeout) {
    if (cost != 1) HOTCOUNT_TRY(check(cost));
    if (!is_plain_key(key, key_rule_)) HOTCOUNT_TRY(check_limit_key(key, key_rule_));
    return hit_plainly(*backend_, prefix_, key, cost, timeout, options_);
}

// What a call ends with, for its caller. It may outlive the limiter.
Completion<Outcome> Limiter::decided(Completion<Decision> done) const {
    return
        [rates = rates_, shadow = options_.shadow, done = std::move(done)](Result<Outcome> found) {
            if (!found) return done(std::move(found).error());
            done(to_decision(*found, *rates, shadow));
        };
}

void Limiter::create_table_async(Completion<void> done, AsyncCall call) {
    backend_->create_table(call, std::move(done));
}

void Limiter::hit_async(std::string_view key, std::int64_t cost, Completion<Decision> done,
                        AsyncCall call) {
    if (auto fits = check(cost); !fits) return done(fits.error());
    auto name = full(key);
    if (!name) return done(std::move(name).error());
    backend_->decide(*name, cost, Take::all, call, decided(std::move(done)));
}

void Limiter::test_async(std::string_view key, std::int64_t cost, Completion<Decision> done,
                         AsyncCall call) {
    if (auto fits = check(cost); !fits) return done(fits.error());
    auto name = full(key);
    if (!name) return done(std::move(name).error());
    backend_->decide(*name, cost, Take::nothing, call, decided(std::move(done)));
}

void Limiter::at_most_async(std::string_view key, std::int64_t n, Completion<std::int64_t> done,
                            AsyncCall call) {
    if (auto fits = check_n(n); !fits) return done(fits.error());
    auto name = full(key);
    if (!name) return done(std::move(name).error());
    backend_->decide(*name, n, Take::what_fits, call,
                     [n, shadow = options_.shadow, done = std::move(done)](Result<Outcome> found) {
                         if (!found) return done(std::move(found).error());
                         done(how_much(*found, n, shadow));
                     });
}

void Limiter::refund_async(std::string_view key, std::int64_t n, Completion<std::int64_t> done,
                           AsyncCall call) {
    if (auto fits = check_n(n); !fits) return done(fits.error());
    auto name = full(key);
    if (!name) return done(std::move(name).error());
    backend_->refund(*name, n, call, [done = std::move(done)](Result<Outcome> found) {
        if (!found) return done(std::move(found).error());
        done(found->remaining);
    });
}

Result<void> Limiter::refund_local(std::string_view key, std::int64_t n) {
    HOTCOUNT_TRY(check_n(n));
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    return backend_->refund_local(name, n);
}

void Limiter::block_async(std::string_view key, Duration duration, Completion<void> done,
                          AsyncCall call) {
    if (auto fits = check_block(duration); !fits) return done(fits.error());
    auto name = full(key);
    if (!name) return done(std::move(name).error());
    backend_->block(*name, std::chrono::ceil<std::chrono::microseconds>(duration), call,
                    [done = std::move(done)](Result<Outcome> found) {
                        done(found ? Result<void>{} : std::move(found).error());
                    });
}

// A batch's good elements as a backend takes them, and the errors of the others in their places.
struct Limiter::Batch {
    std::vector<Result<Decision>> decisions;
    std::vector<std::string> names;
    std::vector<std::int64_t> costs;
    std::vector<std::size_t> places;  // Which element each name stands for.

    std::vector<Result<Decision>> merge(const std::vector<Result<Outcome>>& outcomes,
                                        std::span<const Rate> rates, bool shadow) {
        for (std::size_t i = 0; i < places.size(); ++i) {
            decisions[places[i]] = outcomes[i]
                                       ? Result<Decision>{to_decision(*outcomes[i], rates, shadow)}
                                       : outcomes[i].error();
        }
        return std::move(decisions);
    }
};

Limiter::Batch Limiter::check(std::span<const std::string_view> keys,
                              std::span<const std::int64_t> costs) const {
    Batch batch;
    batch.decisions.reserve(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto checked = check(costs[i]);
        auto name = checked ? full(keys[i]) : Result<std::string>{checked.error()};
        if (!name) {
            batch.decisions.emplace_back(std::move(name).error());
            continue;
        }
        batch.decisions.emplace_back(Decision{});
        batch.names.push_back(std::move(*name));
        batch.costs.push_back(costs[i]);
        batch.places.push_back(i);
    }
    return batch;
}

void Limiter::hit_many_async(std::span<const std::string_view> keys,
                             std::span<const std::int64_t> costs,
                             Completion<std::vector<Result<Decision>>> done, AsyncCall call) {
    const auto batch = std::make_shared<Batch>(check(keys, costs));
    backend_->take_many(std::move(batch->names), batch->costs, call,
                        [batch, rates = rates_, shadow = options_.shadow, done = std::move(done)](
                            const Result<std::vector<Result<Outcome>>>& outcomes) {
                            if (!outcomes) return done(outcomes.error());
                            done(batch->merge(*outcomes, *rates, shadow));
                        });
}

void Limiter::reset_async(std::string_view key, Completion<void> done, AsyncCall call) {
    const auto name = full(key);
    if (!name) return done(name.error());
    backend_->reset(*name, call, std::move(done));
}

std::optional<OutageEvent> Limiter::next_outage_event() { return backend_->next_outage_event(); }

// -- the same for callers who wait ---------------------------------------------------------------

Result<void> Limiter::create_table(Timeout timeout) {
    return wait_for<void>([&](Completion<void> done) {
        create_table_async(std::move(done), backend_->waiting(timeout));
    });
}

Result<Decision> Limiter::test(std::string_view key, std::int64_t cost, Timeout timeout) {
    return wait_for<Decision>([&](Completion<Decision> done) {
        test_async(key, cost, std::move(done), backend_->waiting(timeout));
    });
}

Result<std::int64_t> Limiter::at_most(std::string_view key, std::int64_t n, Timeout timeout) {
    return wait_for<std::int64_t>([&](Completion<std::int64_t> done) {
        at_most_async(key, n, std::move(done), backend_->waiting(timeout));
    });
}

Result<std::int64_t> Limiter::refund(std::string_view key, std::int64_t n, Timeout timeout) {
    return wait_for<std::int64_t>([&](Completion<std::int64_t> done) {
        refund_async(key, n, std::move(done), backend_->waiting(timeout));
    });
}

Result<void> Limiter::block(std::string_view key, Duration duration, Timeout timeout) {
    return wait_for<void>([&](Completion<void> done) {
        block_async(key, duration, std::move(done), backend_->waiting(timeout));
    });
}

std::vector<Result<Decision>> Limiter::hit_many(std::span<const std::string_view> keys,
                                                std::span<const std::int64_t> costs,
                                                Timeout timeout) {
    using Decisions = std::vector<Result<Decision>>;
    auto decided = wait_for<Decisions>([&](Completion<Decisions> done) {
        hit_many_async(keys, costs, std::move(done), backend_->waiting(timeout));
    });
    return decided ? std::move(*decided) : Decisions(keys.size(), std::move(decided).error());
}

Result<void> Limiter::reset(std::string_view key, Timeout timeout) {
    return wait_for<void>([&](Completion<void> done) {
        reset_async(key, std::move(done), backend_->waiting(timeout));
    });
}

}  // namespace hotcount
