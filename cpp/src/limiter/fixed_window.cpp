// fixed_window: at most the limit in each window.
#include <algorithm>

#include "backends.hpp"
#include "hotcount_embedded/limiter/lua.hpp"

namespace hotcount {
namespace {

class FixedWindow {
  public:
    struct State {
        std::int64_t start{0};  // Of the window, in microseconds.
        std::int64_t used{0};   // The cost admitted in it.
        std::int64_t time() const { return start; }
    };
    static constexpr std::string_view kStepName = "fixed_window";
    static std::string_view step_text() { return lua::limiter::kFixedWindowLua; }
    static std::string script() { return framed(step_text()); }

    static Result<FixedWindow> make(const Rate& rate, const LimiterOptions& options) {
        HOTCOUNT_TRY(check_window_rate(rate));
        return FixedWindow{rate, options};
    }

    std::int64_t limit() const { return limit_; }
    std::array<std::int64_t, 3> script_arguments() const {
        return {limit_, period_, align_ == Align::clock ? 0 : 1};
    }

    bool holds(const State& state) const { return state.used <= 2 * limit_; }

    std::optional<State> step(const State* state, std::int64_t now, std::int64_t cost, bool take,
                              Outcome& outcome) const {
        std::int64_t start = start_of(now);
        std::int64_t used = 0;
        bool moved = false;
        // A window whose hits were all given back is none: the next hit begins one.
        if (state && state->used > 0 && now < state->start + period_) {
            // After a clock step back, `used` counts for the window of the present time.
            moved = lies_ahead(state->start, now);
            if (!moved) start = state->start;
            used = state->used;
        }
        const std::int64_t left = start + period_ - now;
        const bool admissible = cost <= limit_;
        std::optional<State> change;
        outcome.allowed = admissible && used + cost <= limit_;
        if (take && (outcome.allowed || (admissible && charge_denied_))) {
            used = std::min(used + cost, 2 * limit_);
            change = State{start, used};
        } else if (moved) {
            change = State{start, used};
        }
        outcome.remaining = std::max<std::int64_t>(limit_ - used, 0);
        if (outcome.allowed) {
            outcome.retry_after_us = 0;
        } else if (admissible) {
            outcome.retry_after_us = left;
        }
        outcome.reset_after_us = used > 0 ? left : 0;
        return change;
    }

    std::optional<State> give_back(const State& state, std::int64_t now, std::int64_t n,
                                   Outcome& outcome) const {
        State after{start_of(now), 0};
        if (now < state.start + period_) {
            if (!lies_ahead(state.start, now)) after.start = state.start;
            after.used = std::max<std::int64_t>(state.used - n, 0);
        }
        outcome.remaining = std::max<std::int64_t>(limit_ - after.used, 0);
        outcome.reset_after_us = after.used > 0 ? after.start + period_ - now : 0;
        return after;
    }

  private:
    std::int64_t start_of(std::int64_t now) const {
        return align_ == Align::clock ? now - now % period_ : now;
    }

    FixedWindow(const Rate& rate, const LimiterOptions& options)
        : limit_(rate.limit),
          period_(rate.period.count()),
          align_(options.align),
          charge_denied_(options.charge_denied) {}

    std::int64_t limit_;
    std::int64_t period_;  // In microseconds.
    Align align_;
    bool charge_denied_;
};

}  // namespace

constinit const LimiterAlgorithm kFixedWindow = stepped<FixedWindow>({
    .algorithm = Algorithm::fixed_window,
    .name = "fixed_window",
    .promise = "at most the limit in each window of the clock",
    .window = WindowKind::store_clock,
    .promise_from_first = "at most the limit in each window from a first hit",
    .takes_charge_denied = true,
});

}  // namespace hotcount
