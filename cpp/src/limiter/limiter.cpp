#include <algorithm>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>

#include "algorithm.hpp"
#include "limiter/waiting_line.hpp"
#include "limiter/wrapped_backend.hpp"

namespace hotcount {
namespace {

std::string whole_seconds(Duration duration) {
    return std::to_string(std::chrono::ceil<std::chrono::seconds>(duration).count());
}

Result<void> check_no_table(const LimiterOptions& options) {
    if (options.table == LimiterOptions::kTable) return {};
    return bad_option("table", "is for databases: other stores have none");
}

bool is_plain_key(std::string_view key, KeyRule rule) {
    return rule == KeyRule::any_bytes && !key.empty() && key.size() <= kMaxKeyBytes;
}

Result<void> check_limit_key(std::string_view key, KeyRule rule) {
    if (is_plain_key(key, rule)) return {};
    // The prefix of encode_plain() does not count.
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

Completion<Outcome> without_outcome(Completion<void> done) {
    return [done = std::move(done)](Result<Outcome> found) {
        done(found ? Result<void>{} : std::move(found).error());
    };
}

// The answer of at_most(): the number of hits taken.
std::int64_t how_much(const Outcome& outcome, std::int64_t n, bool shadow) {
    if (shadow) return n;
    // `taken` of a denied outcome is that of a rate with room, though another rate has none.
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
      key_rule_(backend_->place().key_rule),
      maker_(std::move(maker)) {}
Limiter::~Limiter() { forget_lines_of(this); }

Result<void> LimiterBackend::hit(std::string_view prefix, std::string_view key, std::int64_t cost,
                                 Timeout timeout, Outcome& outcome) {
    HOTCOUNT_TRY_ASSIGN(outcome,
                        run_now(full_key(place_.prefix, prefix, key), {HitRequest{cost}}, timeout));
    return {};
}

Result<std::string> Limiter::full(std::string_view key) const {
    HOTCOUNT_TRY(check_limit_key(key, key_rule_));
    return full_key(backend_->place().prefix, prefix_, key);
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

// The completion of a call, which may outlive the limiter.
Completion<Outcome> Limiter::decided(Completion<Decision> done) const {
    return
        [rates = rates_, shadow = options_.shadow, done = std::move(done)](Result<Outcome> found) {
            if (!found) return done(std::move(found).error());
            done(to_decision(*found, *rates, shadow));
        };
}

void Limiter::run(std::string_view key, const Result<void>& fits, const LimitRequest& request,
                  const AsyncCall& call, Completion<Outcome> done) const {
    if (!fits) return done(fits.error());
    auto name = full(key);
    if (!name) return done(std::move(name).error());
    backend_->run(*name, request, call, std::move(done));
}

void Limiter::create_table_async(Completion<void> done, AsyncCall call) {
    backend_->create_table(call, std::move(done));
}

void Limiter::hit_async(std::string_view key, std::int64_t cost, Completion<Decision> done,
                        AsyncCall call) {
    run(key, check(cost), {HitRequest{cost}}, call, decided(std::move(done)));
}

void Limiter::test_async(std::string_view key, std::int64_t cost, Completion<Decision> done,
                         AsyncCall call) {
    run(key, check(cost), {HitRequest{cost, Take::nothing}}, call, decided(std::move(done)));
}

void Limiter::at_most_async(std::string_view key, std::int64_t n, Completion<std::int64_t> done,
                            AsyncCall call) {
    run(key, check_n(n), {HitRequest{n, Take::what_fits}}, call,
        [n, shadow = options_.shadow, done = std::move(done)](Result<Outcome> found) {
            if (!found) return done(std::move(found).error());
            done(how_much(*found, n, shadow));
        });
}

void Limiter::refund_async(std::string_view key, std::int64_t n, Completion<std::int64_t> done,
                           AsyncCall call) {
    run(key, check_n(n), {RefundRequest{n}}, call, [done = std::move(done)](Result<Outcome> found) {
        if (!found) return done(std::move(found).error());
        done(found->remaining);
    });
}

Result<void> Limiter::refund_local(std::string_view key, std::int64_t n) {
    HOTCOUNT_TRY(check_n(n));
    HOTCOUNT_TRY_ASSIGN(const std::string name, full(key));
    return hotcount::refund_local(*backend_, name, n);
}

void Limiter::block_async(std::string_view key, Duration duration, Completion<void> done,
                          AsyncCall call) {
    const auto life = std::chrono::ceil<std::chrono::microseconds>(duration);
    run(key, check_block(duration), {BlockRequest{life}}, call, without_outcome(std::move(done)));
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
                                       : failed_as<Decision>(outcomes[i]);
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
    backend_->hit_many(std::move(batch->names), batch->costs, call,
                       [batch, rates = rates_, shadow = options_.shadow, done = std::move(done)](
                           const Result<std::vector<Result<Outcome>>>& outcomes) {
                           if (!outcomes) return done(outcomes.error());
                           done(batch->merge(*outcomes, *rates, shadow));
                       });
}

void Limiter::reset_async(std::string_view key, Completion<void> done, AsyncCall call) {
    run(key, {}, {ResetRequest{}}, call, without_outcome(std::move(done)));
}

std::optional<OutageEvent> Limiter::next_outage_event() {
    return hotcount::next_outage_event(*backend_);
}

// -- the calls that block -------------------------------------------------------------------------

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

// -- answers: outcomes of several rates as one, decisions, and their headers ----------------------

bool says_more(const Outcome& a, const Outcome& b) {
    if (a.allowed != b.allowed) return !a.allowed;
    if (a.allowed) return a.remaining < b.remaining;
    if (!a.retry_after_us || !b.retry_after_us) return !a.retry_after_us && b.retry_after_us;
    return *a.retry_after_us > *b.retry_after_us;
}

Outcome merge(std::span<const Outcome> of_rates) {
    Outcome merged = of_rates.front();
    for (std::size_t i = 1; i < of_rates.size(); ++i) {
        const Outcome& one = of_rates[i];
        const std::int64_t remaining = std::min(merged.remaining, one.remaining);
        const std::int64_t longest = std::max(merged.forget_after_us(), one.reset_after_us);
        if (says_more(one, merged)) {
            merged = one;
            merged.rate = static_cast<std::uint8_t>(i);
        }
        merged.remaining = remaining;
        merged.longest_reset_us = longest;
    }
    merged.violated = 0;
    for (std::size_t i = 0; i < of_rates.size(); ++i) {
        if (!of_rates[i].allowed) merged.violated |= static_cast<std::uint8_t>(1U << i);
    }
    return merged;
}

Decision to_decision(const Outcome& outcome, std::span<const Rate> rates, bool shadow) {
    Decision decision{};
    fill(decision, outcome, rates, shadow);
    return decision;
}

void fill(Decision& decision, const Outcome& outcome, std::span<const Rate> rates, bool shadow) {
    using std::chrono::microseconds;
    decision.allowed = outcome.allowed;
    decision.limit = rates[outcome.rate].burst;
    decision.remaining = outcome.remaining;
    decision.retry_after.reset();
    decision.reset_after = microseconds{outcome.reset_after_us};
    decision.reason = outcome.untracked ? Reason::untracked : Reason::allowed;
    decision.rate = outcome.rate;
    decision.violated = outcome.violated;
    // An algorithm of one rate does not say which.
    if (!outcome.allowed && rates.size() == 1) decision.violated = 1;
    if (outcome.blocked || outcome.instead == Reason::closed) decision.violated = 0;
    if (outcome.retry_after_us) decision.retry_after = microseconds{*outcome.retry_after_us};
    if (!outcome.allowed) {
        decision.reason = outcome.blocked          ? Reason::blocked
                          : outcome.retry_after_us ? Reason::limited
                                                   : Reason::cost_above_limit;
        if (shadow) {
            decision.allowed = true;
            decision.reason = Reason::shadow;
        }
    }
    // `closed` always gives the reason, because no limit has refused the hit. `open` and `local`
    // leave `shadow` and `untracked` as the reason.
    const bool says_more = decision.reason == Reason::shadow || outcome.untracked;
    if (outcome.instead == Reason::closed || (outcome.instead != Reason::allowed && !says_more)) {
        decision.reason = outcome.instead;
    }
}

std::string_view to_string(Reason reason) {
    switch (reason) {
        case Reason::allowed:
            return "allowed";
        case Reason::limited:
            return "limited";
        case Reason::cost_above_limit:
            return "cost_above_limit";
        case Reason::untracked:
            return "untracked";
        case Reason::blocked:
            return "blocked";
        case Reason::shadow:
            return "shadow";
        case Reason::open:
            return "open";
        case Reason::closed:
            return "closed";
        case Reason::local:
            return "local";
    }
    return "";
}

std::vector<std::pair<std::string, std::string>> headers(const Decision& decision,
                                                         HeaderStyle style, std::string_view policy,
                                                         const Rate& rate) {
    const std::string limit = std::to_string(decision.limit);
    const std::string remaining = std::to_string(decision.remaining);
    const std::string reset = whole_seconds(decision.reset_after);
    const bool waits = !decision.allowed && decision.retry_after;
    std::vector<std::pair<std::string, std::string>> fields;
    if (style == HeaderStyle::ietf) {
        const std::string name = "\"" + std::string{policy} + "\"";
        std::string quota =
            name + ";q=" + std::to_string(rate.limit) + ";w=" + whole_seconds(rate.period);
        // The burst differs from the limit: a parameter of our own, which by the draft begins with
        // its vendor's name.
        if (decision.limit != rate.limit) quota += ";hotcount-burst=" + limit;
        fields.emplace_back("RateLimit-Policy", std::move(quota));
        // For `t` seconds at most `r` can be used. By the draft, Retry-After must not be earlier
        // than `t`.
        fields.emplace_back("RateLimit",
                            name + ";r=" + remaining +
                                ";t=" + (waits ? whole_seconds(*decision.retry_after) : reset));
    } else {
        fields.emplace_back("X-RateLimit-Limit", limit);
        fields.emplace_back("X-RateLimit-Remaining", remaining);
        fields.emplace_back("X-RateLimit-Reset", reset);
    }
    if (waits) {
        fields.emplace_back("Retry-After", whole_seconds(*decision.retry_after));
    }
    return fields;
}

}  // namespace hotcount
