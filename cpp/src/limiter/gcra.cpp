// gcra, token_bucket and leaky_bucket: at most burst + rate x t in every interval of length t.
//
// A token bucket with continuous refill, a leaky bucket as a meter and the generic cell rate
// algorithm decide every hit alike: the missing tokens, the water in the bucket and the debt are
// one number. So one law is registered under the three names.
//
// The law counts a key's debt in units chosen so that nothing is rounded: a hit costs `token`
// units, and each microsecond pays `refill` of them back. The two are the period and the limit
// divided by their greatest common divisor, so that the long-run rate is the configured one
// exactly, at 1 a day as at a million a second.
#include <algorithm>
#include <numeric>

#include "backends.hpp"
#include "hotcount_embedded/limiter/lua.hpp"

namespace hotcount {
namespace {

class Gcra {
  public:
    struct State {
        std::int64_t at{0};    // The time at which the key had this debt, in us.
        std::int64_t debt{0};  // In units.
        std::int64_t time() const { return at; }
    };
    static constexpr std::string_view kStepName = "gcra";
    static std::string_view step_text() { return lua::limiter::kGcraLua; }
    static std::string script() { return framed(step_text()); }

    static Result<Gcra> make(const Rate& rate, const LimiterOptions& options) {
        HOTCOUNT_TRY(check_rate(rate));
        const Gcra gcra{rate, options.charge_denied};
        // The largest number in a step: a full debt (twice that with charge_denied), the price of
        // one more hit, and a rounding up.
        std::int64_t largest = 0;
        if (__builtin_mul_overflow((gcra.charge_denied_ ? 3 : 2) * gcra.limit_, gcra.token_,
                                   &largest) ||
            largest >= kExact - gcra.refill_) {
            return make_error(
                ErrorCode::config,
                "the rate " + rate.str() +
                    " cannot be kept exactly: its burst times its period is too large. "
                    "Take a shorter period, a smaller burst or a rounder limit");
        }
        return gcra;
    }

    std::int64_t limit() const { return limit_; }
    std::array<std::int64_t, 3> script_arguments() const { return {limit_, token_, refill_}; }

    bool holds(const State& state) const { return state.debt <= 2 * limit_ * token_; }

    std::optional<State> step(const State* state, std::int64_t now, std::int64_t cost, bool take,
                              Outcome& outcome, bool ahead = false) const {
        std::int64_t at = now;
        std::int64_t debt = 0;
        bool moved = false;
        if (state) {
            moved = lies_ahead(state->at, now);
            at = moved ? now : std::max(now, state->at);
            debt = debt_at(*state, moved, at);
        }
        const bool admissible = cost <= limit_;
        const std::int64_t price = admissible ? cost * token_ : 0;
        std::optional<State> change;
        const std::int64_t early = debt + price - capacity_;
        outcome.allowed = admissible && (early <= 0 || (ahead && at == now && 2 * early <= price &&
                                                        divide_up(early, kMostAhead) <= refill_));
        if (take && (outcome.allowed || (admissible && charge_denied_))) {
            debt = std::min(debt + price, 2 * capacity_);
            change = State{at, debt};
        } else if (moved) {
            change = State{at, debt};
        }
        fill_rest(outcome, State{at, debt}, now);
        if (outcome.allowed) {
            outcome.retry_after_us = early > 0 ? divide_up(early, refill_) : 0;
        } else if (admissible) {
            outcome.retry_after_us = divide_up(debt + price - capacity_, refill_) + at - now;
        }
        return change;
    }

    std::optional<State> give_back(const State& state, std::int64_t now, std::int64_t n,
                                   Outcome& outcome) const {
        const bool moved = lies_ahead(state.at, now);
        const std::int64_t at = moved ? now : std::max(now, state.at);
        const std::int64_t price = std::min(n, 2 * limit_) * token_;
        const State after{at, std::max<std::int64_t>(debt_at(state, moved, at) - price, 0)};
        fill_rest(outcome, after, now);
        return after;
    }

  private:
    // The debt at the time `at`. `moved`: the clock was set back, so none of it is paid.
    std::int64_t debt_at(const State& state, bool moved, std::int64_t at) const {
        const std::int64_t elapsed = moved ? 0 : at - state.at;
        // `elapsed` may be years: if the product leaves 64 bits, the whole debt is paid.
        std::int64_t paid = 0;
        if (__builtin_mul_overflow(elapsed, refill_, &paid)) return 0;
        return std::max<std::int64_t>(state.debt - paid, 0);
    }
    void fill_rest(Outcome& outcome, const State& after, std::int64_t now) const {
        const std::int64_t debt = after.debt;
        outcome.remaining = by_token_.divide(std::max<std::int64_t>(capacity_ - debt, 0));
        outcome.reset_after_us =
            debt > 0 ? by_refill_.divide(debt + refill_ - 1) + after.at - now : 0;
    }

    Gcra(const Rate& rate, bool charge_denied) : limit_(rate.burst), charge_denied_(charge_denied) {
        const std::int64_t period = rate.period.count();
        const std::int64_t shared = std::gcd(rate.limit, period);
        token_ = period / shared;
        refill_ = rate.limit / shared;
        by_token_ = Divisor{token_};
        by_refill_ = Divisor{refill_};
        if (__builtin_mul_overflow(limit_, token_, &capacity_)) capacity_ = kExact;  // Refused.
    }

    std::int64_t limit_;
    std::int64_t token_{1};   // The debt of one hit.
    std::int64_t refill_{1};  // The debt paid back in a microsecond.
    bool charge_denied_;
    Divisor by_token_{1};
    Divisor by_refill_{1};
    std::int64_t capacity_{0};
};

constexpr AlgorithmInfo bucket(Algorithm algorithm, std::string_view name) {
    return {
        .algorithm = algorithm,
        .name = name,
        .promise = "at most burst + rate x t of them in any time t",
        .window = WindowKind::none,
        .takes_charge_denied = true,
    };
}

}  // namespace

constinit const LimiterAlgorithm kGcra = stepped<Gcra>(bucket(Algorithm::gcra, "gcra"));
constinit const LimiterAlgorithm kTokenBucket =
    stepped<Gcra>(bucket(Algorithm::token_bucket, "token_bucket"));
constinit const LimiterAlgorithm kLeakyBucket =
    stepped<Gcra>(bucket(Algorithm::leaky_bucket, "leaky_bucket"));

}  // namespace hotcount
