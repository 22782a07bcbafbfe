#include <algorithm>
#include <array>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>

#include "algorithm.hpp"
#include "limiter/deny_cache.hpp"

namespace hotcount {
namespace {

// The names of those for which `has` is true: "fixed_window and gcra".
std::string names_of(bool (*has)(const AlgorithmInfo&)) {
    std::string names;
    for (const LimiterAlgorithm* const algorithm : kLimiterAlgorithms) {
        if (!has(algorithm->info)) continue;
        names += (names.empty() ? "" : " and ") + std::string{algorithm->info.name};
    }
    return names;
}

bool remembers_callers(const AlgorithmInfo& algorithm) { return algorithm.remembers_callers; }

}  // namespace

Result<void> check_limiter_name(std::string_view name) {
    const auto fits = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
    if (!name.empty() && name.size() <= 100 && std::all_of(name.begin(), name.end(), fits)) {
        return {};
    }
    return bad_option("name",
                      "is '" + printable(name) +
                          "'; it takes 1 to 100 printable ASCII characters "
                          "without quotes and backslashes",
                      printable(name));
}

Result<void> check_limiter_options(const LimiterOptions& options) {
    HOTCOUNT_TRY(check_limiter_name(options.name));
    const AlgorithmInfo& algorithm = info(options.algorithm);
    const auto takes_align = [](const AlgorithmInfo& one) {
        return !one.promise_from_first.empty();
    };
    if (options.align != Align::clock && !takes_align(algorithm)) {
        return bad_option("align", "is for " + names_of(takes_align) + ", not for " +
                                       std::string{algorithm.name});
    }
    const auto takes_charge = [](const AlgorithmInfo& one) { return one.takes_charge_denied; };
    if (options.rates.empty() || options.rates.size() > LimiterOptions::kMaxRates) {
        return bad_option("rate", "has " + std::to_string(options.rates.size()) +
                                      " rates; it takes 1 to " +
                                      std::to_string(LimiterOptions::kMaxRates));
    }
    for (std::size_t i = 0; i < options.rates.size(); ++i) {
        const auto first = options.rates.begin();
        if (std::find(first, first + static_cast<std::ptrdiff_t>(i), options.rates[i]) ==
            first + static_cast<std::ptrdiff_t>(i)) {
            continue;
        }
        return bad_option("rate", "has " + options.rates[i].str() + " twice");
    }
    const auto takes_several = [](const AlgorithmInfo& one) { return one.takes_several_rates; };
    if (options.rates.size() > 1 && !takes_several(algorithm)) {
        return bad_option("rate", "may be several for " + names_of(takes_several) + ", not for " +
                                      std::string{algorithm.name});
    }
    if (options.deny_cache < 0 || options.deny_cache > LimiterOptions::kMaxDenyCache) {
        return bad_value("deny_cache", options.deny_cache,
                         "it takes 0 to " + std::to_string(LimiterOptions::kMaxDenyCache));
    }
    if (options.deny_cache > 0 && algorithm.is_unsafe) {
        return bad_option("deny_cache", "is not for " + std::string{algorithm.name} +
                                            ", which does not say when it admits again");
    }
    if (options.deny_cache > 0 && options.charge_denied) {
        return bad_option("deny_cache",
                          "is not for charge_denied: a hit that is not sent costs nothing");
    }
    if (options.op_keep < std::chrono::seconds{1}) {
        return bad_option("op_keep", "must be 1 second or more");
    }
    if (options.charge_denied && !takes_charge(algorithm)) {
        return bad_option("charge_denied", "is for " + names_of(takes_charge) + ", not for " +
                                               std::string{algorithm.name});
    }
    return {};
}

namespace {

Result<void> check_no_table(const LimiterOptions& options) {
    if (options.table == LimiterOptions::kTable) return {};
    return bad_option("table", "is for databases: other stores have none");
}

// Limiters whose states mean the same share keys; a window that begins elsewhere does not.
std::string key_prefix(const LimiterOptions& options) {
    std::string prefix = "limit:" + escape_part(options.name) + ":";
    prefix += to_string(options.algorithm);
    if (options.align == Align::first) prefix += "_first";
    std::string rates;
    for (const Rate& rate : options.rates) rates += (rates.empty() ? "" : ";") + rate.str();
    std::replace(rates.begin(), rates.end(), ' ', '_');
    return prefix + ":" + rates;
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

const LimiterAlgorithm& find_algorithm(Algorithm algorithm) {
    return *kLimiterAlgorithms[static_cast<std::size_t>(algorithm)];
}

const AlgorithmInfo& info(Algorithm algorithm) { return find_algorithm(algorithm).info; }

std::span<const Algorithm> algorithms() {
    static const auto kAll = [] {
        std::array<Algorithm, kLimiterAlgorithms.size()> all{};
        std::transform(kLimiterAlgorithms.begin(), kLimiterAlgorithms.end(), all.begin(),
                       [](const LimiterAlgorithm* one) { return one->info.algorithm; });
        return all;
    }();
    return kAll;
}

std::string_view to_string(Algorithm algorithm) { return info(algorithm).name; }

Result<Algorithm> parse_algorithm(std::string_view name) {
    std::string known;
    for (const Algorithm algorithm : algorithms()) {
        if (to_string(algorithm) == name) return algorithm;
        known += (known.empty() ? "" : ", ") + std::string{to_string(algorithm)};
    }
    return bad_option("algorithm", "is '" + printable(name) + "'; it takes " + known,
                      printable(name));
}

Error no_limit_state(std::string_view key) {
    return make_error(ErrorCode::wrong_type,
                      "the key " + printable(key) + " holds something that is no limiter's state")
        .about(&ErrorFacts::key, key);
}

Result<void> check_window_rate(const Rate& rate) {
    HOTCOUNT_TRY(check_rate(rate));
    if (rate.burst == rate.limit) return {};
    return make_error(ErrorCode::config,
                      "the rate " + rate.str() +
                          " has a burst, which only gcra and the buckets know: a window "
                          "admits its limit at once");
}

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
    return make_with(
        [client = std::move(client), cache = std::move(cache)](
            const LimiterOptions& chosen) -> Result<std::unique_ptr<LimiterBackend>> {
            HOTCOUNT_TRY_ASSIGN(auto backend,
                                find_algorithm(chosen.algorithm).over_redis(client, chosen));
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
      maker_(std::move(maker)) {}
Limiter::~Limiter() = default;

Result<std::string> Limiter::full(std::string_view key) const {
    // What encode_plain() adds does not count.
    HOTCOUNT_TRY(check_key(key.starts_with("%25") ? key.substr(2) : key, backend_->key_rule()));
    return full_key(backend_->store_prefix(), prefix_, key);
}

Result<void> Limiter::check(std::int64_t cost, std::string_view who) const {
    if (cost < 1) {
        return make_error(ErrorCode::config,
                          "cost is " + std::to_string(cost) + "; it takes 1 or more");
    }
    if (cost != 1 && info_.is_unsafe) {
        return make_error(ErrorCode::config,
                          "cost must be 1: " + std::string{info_.name} + " counts calls");
    }
    if (!who.empty() && !info_.remembers_callers) {
        return make_error(ErrorCode::config, "who is for " + names_of(remembers_callers) +
                                                 ", not for " + std::string{info_.name});
    }
    if (who.size() > kMaxKeyBytes) {
        return make_error(ErrorCode::config, "who is longer than 1000 bytes");
    }
    return {};
}

Result<void> Limiter::check_at_most(std::int64_t n) const {
    if (n < 1) {
        return make_error(ErrorCode::config, "n is " + std::to_string(n) + "; it takes 1 or more");
    }
    if (!info_.is_unsafe) return {};
    return make_error(ErrorCode::config,
                      "at_most is not for " + std::string{info_.name} + ", which counts calls");
}

Result<void> Limiter::check_refund(std::string_view call) const {
    if (info_.takes_refunds) return {};
    const auto takes_refunds = [](const AlgorithmInfo& one) { return one.takes_refunds; };
    return make_error(ErrorCode::config, std::string{call} + " is for " + names_of(takes_refunds) +
                                             ", not for " + std::string{info_.name});
}

Result<void> Limiter::check_refund(std::int64_t n) const {
    HOTCOUNT_TRY(check_refund("refund"));
    if (n >= 1) return {};
    return make_error(ErrorCode::config, "n is " + std::to_string(n) + "; it takes 1 or more");
}

Result<std::int64_t> Limiter::check_block(Duration duration) const {
    HOTCOUNT_TRY(check_refund("block"));
    if (duration > Duration{0} && duration <= Rate::kMaxPeriod) {
        return std::chrono::ceil<std::chrono::microseconds>(duration).count();
    }
    return make_error(ErrorCode::config,
                      "seconds is " +
                          std::to_string(std::chrono::duration<double>(duration).count()) +
                          "; it takes more than 0 seconds and 366 days at most");
}

Result<void> Limiter::check_entries() const {
    if (info_.remembers_callers) return {};
    return make_error(ErrorCode::config, "entries is for " + names_of(remembers_callers) +
                                             ", not for " + std::string{info_.name});
}

Result<void> Limiter::check_async() const {
    if (backend_->check_async()) return {};
    return make_error(ErrorCode::config,
                      std::string{info_.name} +
                          " waits for several round trips and is not for calls that do not wait");
}

// -- calls that are waited for ------------------------------------------------------------------

Result<void> Limiter::create_table(Timeout timeout) { return backend_->create_table(timeout); }

Result<Decision> Limiter::hit(std::string_view key, std::int64_t cost, std::string_view who,
                              Timeout timeout) {
    HOTCOUNT_TRY(check(cost, who));
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    std::string decoded;
    if (who.empty() && info_.remembers_callers) who = decoded = decode_plain(key);
    HOTCOUNT_TRY_ASSIGN(const Outcome outcome,
                        backend_->decide(name, cost, Take::all, who, timeout));
    return to_decision(outcome, options_.rates, options_.shadow);
}

Result<Decision> Limiter::test(std::string_view key, std::int64_t cost, Timeout timeout) {
    HOTCOUNT_TRY(check(cost, {}));
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    HOTCOUNT_TRY_ASSIGN(const Outcome outcome,
                        backend_->decide(name, cost, Take::nothing, {}, timeout));
    return to_decision(outcome, options_.rates, options_.shadow);
}

Result<std::int64_t> Limiter::at_most(std::string_view key, std::int64_t n, Timeout timeout) {
    HOTCOUNT_TRY(check_at_most(n));
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    HOTCOUNT_TRY_ASSIGN(const Outcome outcome,
                        backend_->decide(name, n, Take::what_fits, decode_plain(key), timeout));
    return how_much(outcome, n, options_.shadow);
}

Result<std::int64_t> Limiter::refund(std::string_view key, std::int64_t n, Timeout timeout) {
    HOTCOUNT_TRY(check_refund(n));
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    HOTCOUNT_TRY_ASSIGN(const Outcome outcome, backend_->decide(name, -n, Take::all, {}, timeout));
    return outcome.remaining;
}

Result<void> Limiter::block(std::string_view key, Duration duration, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::int64_t us, check_block(duration));
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    HOTCOUNT_TRY(backend_->decide(name, us, Take::block, {}, timeout));
    return {};
}

// A batch's good elements as a backend takes them, and the errors of the others in their places.
struct Limiter::Batch {
    std::vector<Result<Decision>> decisions;
    std::vector<std::string> names;
    std::vector<std::int64_t> costs;
    std::vector<std::string> decoded;   // Reserved: views of its elements are taken.
    std::vector<std::string_view> who;  // As hit() has it: for list the key itself.
    std::vector<std::size_t> places;    // Which element each name stands for.

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
    const bool is_list = info_.remembers_callers;
    batch.decisions.reserve(keys.size());
    batch.decoded.reserve(is_list ? keys.size() : 0);
    for (std::size_t i = 0; i < keys.size(); ++i) {
        const auto checked = check(costs[i], {});
        auto name = checked ? full(keys[i]) : Result<std::string>{checked.error()};
        if (!name) {
            batch.decisions.emplace_back(std::move(name).error());
            continue;
        }
        batch.decisions.emplace_back(Decision{});
        batch.names.push_back(std::move(*name));
        batch.costs.push_back(costs[i]);
        batch.who.push_back(is_list ? batch.decoded.emplace_back(decode_plain(keys[i])) : keys[i]);
        batch.places.push_back(i);
    }
    return batch;
}

std::vector<Result<Decision>> Limiter::hit_many(std::span<const std::string_view> keys,
                                                std::span<const std::int64_t> costs,
                                                Timeout timeout) {
    Batch batch = check(keys, costs);
    return batch.merge(backend_->take_many(batch.names, batch.costs, batch.who, timeout),
                       options_.rates, options_.shadow);
}

Result<void> Limiter::reset(std::string_view key, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    return backend_->reset(name, timeout);
}

std::optional<OutageEvent> Limiter::next_outage_event() { return backend_->next_outage_event(); }

Result<std::vector<std::string>> Limiter::entries(std::string_view key, Timeout timeout) {
    HOTCOUNT_TRY(check_entries());
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    return backend_->entries(name, timeout);
}

// -- calls that are not -------------------------------------------------------------------------

void Limiter::create_table_async(Completion<void> done, AsyncCall call) {
    backend_->create_table_async(call, std::move(done));
}

void Limiter::decide_async(std::string_view key, std::int64_t cost, bool take, std::string_view who,
                           Completion<Decision> done, const AsyncCall& call) {
    if (auto fits = check_async(); !fits) return done(fits.error());
    if (auto fits = check(cost, who); !fits) return done(fits.error());
    auto name = full(key);
    if (!name) return done(std::move(name).error());
    std::string decoded;
    if (take && who.empty() && info_.remembers_callers) {
        who = decoded = decode_plain(key);
    }
    backend_->decide_async(
        *name, cost, take ? Take::all : Take::nothing, who, call,
        [rates = rates_, shadow = options_.shadow, done = std::move(done)](Result<Outcome> found) {
            if (!found) return done(std::move(found).error());
            done(to_decision(*found, *rates, shadow));
        });
}

void Limiter::hit_async(std::string_view key, std::int64_t cost, std::string_view who,
                        Completion<Decision> done, AsyncCall call) {
    decide_async(key, cost, true, who, std::move(done), call);
}

void Limiter::at_most_async(std::string_view key, std::int64_t n, Completion<std::int64_t> done,
                            AsyncCall call) {
    if (auto fits = check_at_most(n); !fits) return done(fits.error());
    auto name = full(key);
    if (!name) return done(std::move(name).error());
    backend_->decide_async(
        *name, n, Take::what_fits, decode_plain(key), call,
        [n, shadow = options_.shadow, done = std::move(done)](Result<Outcome> found) {
            if (!found) return done(std::move(found).error());
            done(how_much(*found, n, shadow));
        });
}

void Limiter::refund_async(std::string_view key, std::int64_t n, Completion<std::int64_t> done,
                           AsyncCall call) {
    if (auto fits = check_refund(n); !fits) return done(fits.error());
    auto name = full(key);
    if (!name) return done(std::move(name).error());
    backend_->decide_async(*name, -n, Take::all, {}, call,
                           [done = std::move(done)](Result<Outcome> found) {
                               if (!found) return done(std::move(found).error());
                               done(found->remaining);
                           });
}

void Limiter::block_async(std::string_view key, Duration duration, Completion<void> done,
                          AsyncCall call) {
    const auto us = check_block(duration);
    if (!us) return done(us.error());
    auto name = full(key);
    if (!name) return done(std::move(name).error());
    backend_->decide_async(*name, *us, Take::block, {}, call,
                           [done = std::move(done)](Result<Outcome> found) {
                               done(found ? Result<void>{} : std::move(found).error());
                           });
}

void Limiter::test_async(std::string_view key, std::int64_t cost, Completion<Decision> done,
                         AsyncCall call) {
    decide_async(key, cost, false, {}, std::move(done), call);
}

void Limiter::hit_many_async(std::span<const std::string_view> keys,
                             std::span<const std::int64_t> costs,
                             Completion<std::vector<Result<Decision>>> done, AsyncCall call) {
    if (auto fits = check_async(); !fits) return done(fits.error());
    const auto batch = std::make_shared<Batch>(check(keys, costs));
    backend_->take_many_async(
        std::move(batch->names), batch->costs, batch->who, call,
        [batch, rates = rates_, shadow = options_.shadow,
         done = std::move(done)](const Result<std::vector<Result<Outcome>>>& outcomes) {
            if (!outcomes) return done(outcomes.error());
            done(batch->merge(*outcomes, *rates, shadow));
        });
}

void Limiter::reset_async(std::string_view key, Completion<void> done, AsyncCall call) {
    if (auto fits = check_async(); !fits) return done(fits.error());
    const auto name = full(key);
    if (!name) return done(name.error());
    backend_->reset_async(*name, call, std::move(done));
}

void Limiter::entries_async(std::string_view key, Completion<std::vector<std::string>> done,
                            AsyncCall call) {
    if (auto fits = check_entries(); !fits) return done(fits.error());
    const auto name = full(key);
    if (!name) return done(name.error());
    backend_->entries_async(*name, call, std::move(done));
}

}  // namespace hotcount
