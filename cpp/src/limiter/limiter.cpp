#include <algorithm>
#include <array>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>

#include "backend.hpp"

namespace hotcount {
namespace {

constexpr std::array<std::string_view, 6> kNames{"fixed_window",   "gcra",      "list",
                                                 "per_second_key", "racy_incr", "incr_expire"};

// A list holds an element for each hit, so it cannot be for millions.
constexpr std::int64_t kMaxListLimit = 100'000;

bool is_seed_way(Algorithm algorithm) { return algorithm >= Algorithm::per_second_key; }

Result<void> check_name(std::string_view name) {
    const auto fits = [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; };
    if (!name.empty() && name.size() <= 100 && std::all_of(name.begin(), name.end(), fits)) {
        return {};
    }
    return bad_option("name",
                      "is '" + printable(name) +
                          "'; it takes 1 to 100 printable ASCII characters "
                          "without quotes and backslashes",
                      std::string{name});
}

// Limiters whose states mean the same share keys; a window that begins elsewhere does not.
std::string key_prefix(const LimiterOptions& options) {
    std::string prefix = "limit:" + escape_part(options.name) + ":";
    prefix += to_string(options.algorithm);
    if (options.align == Align::first) prefix += "_first";
    std::string rate = options.rate.str();
    std::replace(rate.begin(), rate.end(), ' ', '_');
    return prefix + ":" + rate;
}

Decision to_decision(const Verdict& verdict, std::int64_t cost, std::int64_t limit) {
    using std::chrono::microseconds;
    Decision decision{.allowed = verdict.allowed,
                      .limit = limit,
                      .remaining = verdict.remaining,
                      .retry_after = std::nullopt,
                      .reset_after = microseconds{verdict.reset_after_us},
                      .reason = verdict.untracked ? Reason::untracked : Reason::allowed};
    if (verdict.retry_after_us) decision.retry_after = microseconds{*verdict.retry_after_us};
    if (!verdict.allowed) {
        decision.reason = cost > limit ? Reason::cost_above_limit : Reason::limited;
    }
    return decision;
}

}  // namespace

std::string_view to_string(Algorithm algorithm) {
    return kNames[static_cast<std::size_t>(algorithm)];
}

Result<Algorithm> parse_algorithm(std::string_view name) {
    std::string known;
    for (std::size_t i = 0; i < kNames.size(); ++i) {
        if (kNames[i] == name) return static_cast<Algorithm>(i);
        known += (i == 0 ? "" : ", ") + std::string{kNames[i]};
    }
    return bad_option("algorithm", "is '" + printable(name) + "'; it takes " + known,
                      std::string{name});
}

Error no_limit_state(std::string_view key) {
    return make_error(ErrorCode::wrong_type,
                      "the key " + printable(key) + " holds something that is no limiter's state")
        .about(&ErrorFacts::key, key);
}

Result<Plan> make_plan(const LimiterOptions& options) {
    HOTCOUNT_TRY(check_name(options.name));
    const Algorithm algorithm = options.algorithm;
    const std::string title{to_string(algorithm)};
    if (options.align != Align::clock && algorithm != Algorithm::fixed_window) {
        return bad_option("align", "is for fixed_window, not for " + title);
    }
    const bool can_charge = algorithm == Algorithm::fixed_window || algorithm == Algorithm::gcra;
    if (options.charge_denied && !can_charge) {
        return bad_option("charge_denied", "is for fixed_window and gcra, not for " + title);
    }
    if (algorithm == Algorithm::gcra) return plan_gcra(options.rate, options.charge_denied);
    HOTCOUNT_TRY_ASSIGN(const Plan plan,
                        plan_window(options.rate, options.align, options.charge_denied));
    if (algorithm == Algorithm::list && plan.limit > kMaxListLimit) {
        return make_error(ErrorCode::config, "list remembers each hit and takes a limit of " +
                                                 std::to_string(kMaxListLimit) + " at most, not " +
                                                 std::to_string(plan.limit));
    }
    if (is_seed_way(algorithm) && plan.period % 1'000'000 != 0) {
        return make_error(ErrorCode::config, title + " takes a period of whole seconds");
    }
    if (algorithm == Algorithm::per_second_key && plan.period != 1'000'000) {
        return make_error(ErrorCode::config,
                          "per_second_key takes a rate per second, not " + options.rate.str());
    }
    return plan;
}

Result<std::shared_ptr<Limiter>> Limiter::make(std::shared_ptr<memory::Store> store,
                                               LimiterOptions options) {
    HOTCOUNT_TRY_ASSIGN(const Plan plan, make_plan(options));
    return std::make_shared<Limiter>(make_memory_backend(std::move(store), options.algorithm, plan),
                                     std::move(options));
}

Result<std::shared_ptr<Limiter>> Limiter::make(std::shared_ptr<redis::Client> client,
                                               LimiterOptions options) {
    HOTCOUNT_TRY_ASSIGN(const Plan plan, make_plan(options));
    return std::make_shared<Limiter>(make_redis_backend(std::move(client), options.algorithm, plan),
                                     std::move(options));
}

Limiter::Limiter(std::unique_ptr<LimiterBackend> backend, LimiterOptions options)
    : options_(std::move(options)), prefix_(key_prefix(options_)), backend_(std::move(backend)) {}
Limiter::~Limiter() = default;

Result<std::string> Limiter::full(std::string_view key) const {
    // What encode_plain() adds does not count.
    HOTCOUNT_TRY(check_key(key.starts_with("%25") ? key.substr(2) : key));
    return full_key(backend_->store_prefix(), prefix_, key);
}

Result<void> Limiter::check(std::int64_t cost, std::string_view who) const {
    if (cost < 1) {
        return make_error(ErrorCode::config,
                          "cost is " + std::to_string(cost) + "; it takes 1 or more");
    }
    if (cost != 1 && is_seed_way(options_.algorithm)) {
        return make_error(
            ErrorCode::config,
            "cost must be 1: " + std::string{to_string(options_.algorithm)} + " counts calls");
    }
    if (!who.empty() && options_.algorithm != Algorithm::list) {
        return make_error(ErrorCode::config,
                          "who is for list, not for " + std::string{to_string(options_.algorithm)});
    }
    if (who.size() > kMaxKeyBytes) {
        return make_error(ErrorCode::config, "who is longer than 1000 bytes");
    }
    return {};
}

Result<void> Limiter::check_entries() const {
    if (options_.algorithm == Algorithm::list) return {};
    return make_error(ErrorCode::config,
                      "entries is for list, not for " + std::string{to_string(options_.algorithm)});
}

Result<void> Limiter::check_async() const {
    if (backend_->check_async()) return {};
    return make_error(ErrorCode::config,
                      std::string{to_string(options_.algorithm)} +
                          " waits for several round trips and is not for calls that do not wait");
}

// -- calls that are waited for ------------------------------------------------------------------

Result<Decision> Limiter::hit(std::string_view key, std::int64_t cost, std::string_view who,
                              Timeout timeout) {
    HOTCOUNT_TRY(check(cost, who));
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    std::string decoded;
    if (who.empty() && options_.algorithm == Algorithm::list) who = decoded = decode_plain(key);
    HOTCOUNT_TRY_ASSIGN(const Verdict verdict, backend_->decide(name, cost, true, who, timeout));
    return to_decision(verdict, cost, limit());
}

Result<Decision> Limiter::test(std::string_view key, std::int64_t cost, Timeout timeout) {
    HOTCOUNT_TRY(check(cost, {}));
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    HOTCOUNT_TRY_ASSIGN(const Verdict verdict, backend_->decide(name, cost, false, {}, timeout));
    return to_decision(verdict, cost, limit());
}

// A batch's good elements as a backend takes them, and the errors of the others in their places.
struct Limiter::Batch {
    std::vector<Result<Decision>> decisions;
    std::vector<std::string> names;
    std::vector<std::int64_t> costs;
    std::vector<std::string> decoded;   // Reserved: views of its elements are taken.
    std::vector<std::string_view> who;  // As hit() has it: for list the key itself.
    std::vector<std::size_t> places;    // Which element each name stands for.

    std::vector<Result<Decision>> merge(const std::vector<Result<Verdict>>& verdicts,
                                        std::span<const std::int64_t> prices, std::int64_t limit) {
        for (std::size_t i = 0; i < places.size(); ++i) {
            decisions[places[i]] =
                verdicts[i] ? Result<Decision>{to_decision(*verdicts[i], prices[i], limit)}
                            : verdicts[i].error();
        }
        return std::move(decisions);
    }
};

Limiter::Batch Limiter::check(std::span<const std::string_view> keys,
                              std::span<const std::int64_t> costs) const {
    Batch batch;
    const bool is_list = options_.algorithm == Algorithm::list;
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
                       batch.costs, limit());
}

Result<void> Limiter::reset(std::string_view key, Timeout timeout) {
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    return backend_->reset(name, timeout);
}

Result<std::vector<std::string>> Limiter::entries(std::string_view key, Timeout timeout) {
    HOTCOUNT_TRY(check_entries());
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    return backend_->entries(name, timeout);
}

// -- calls that are not -------------------------------------------------------------------------

void Limiter::decide_async(std::string_view key, std::int64_t cost, bool take, std::string_view who,
                           Completion<Decision> done, const AsyncCall& call) {
    if (auto fits = check_async(); !fits) return done(fits.error());
    if (auto fits = check(cost, who); !fits) return done(fits.error());
    auto name = full(key);
    if (!name) return done(std::move(name).error());
    std::string decoded;
    if (take && who.empty() && options_.algorithm == Algorithm::list) {
        who = decoded = decode_plain(key);
    }
    backend_->decide_async(*name, cost, take, who, call,
                           [cost, limit = limit(), done = std::move(done)](Result<Verdict> found) {
                               if (!found) return done(std::move(found).error());
                               done(to_decision(*found, cost, limit));
                           });
}

void Limiter::hit_async(std::string_view key, std::int64_t cost, std::string_view who,
                        Completion<Decision> done, AsyncCall call) {
    decide_async(key, cost, true, who, std::move(done), call);
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
    backend_->take_many_async(std::move(batch->names), batch->costs, batch->who, call,
                              [batch, limit = limit(), done = std::move(done)](
                                  const Result<std::vector<Result<Verdict>>>& verdicts) {
                                  if (!verdicts) return done(verdicts.error());
                                  done(batch->merge(*verdicts, batch->costs, limit));
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
