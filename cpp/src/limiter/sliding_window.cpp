// sliding_window: the count of the clock's window plus a share of the count of the window before:
// the part of that window that is within the last period, rounded to the nearest whole hit.
//
// So a key needs two numbers and no log. It admits at most the limit in each window of the
// clock. In a period that lies across an edge it admits at most the limit + the share of that
// period after the edge x the first window's count, rounded: at most twice the limit, and
// that only to callers who spend a whole window in its last moment.
//
// With the share rounded up, a window after a full one would have room for its last hit only at its
// end: a limit of 4 would admit 3 in each. Rounded down, a limit of 1 would admit two hits at once.
//
// The share falls in ticks, whose length is chosen so that the limit times the ticks of a period
// stays exact. A tick is a microsecond while limit x period in microseconds is below 2^50.
#include <algorithm>

#include "backends.hpp"
#include "hotcount_embedded/limiter/lua.hpp"

namespace hotcount {
namespace {

class SlidingWindow {
  public:
    struct State {
        std::int64_t start{0};   // Of the window, in microseconds.
        std::int64_t used{0};    // The cost admitted in it,
        std::int64_t before{0};  // and in the window before.
        std::int64_t time() const { return start; }
    };
    static constexpr std::string_view kStepName = "sliding_window";
    static std::string_view step_text() { return lua::limiter::kSlidingWindowLua; }
    static std::string script() { return framed(step_text()); }

    static Result<SlidingWindow> make(const Rate& rate, const LimiterOptions& options) {
        HOTCOUNT_TRY(check_window_rate(rate));
        return SlidingWindow{rate, options.charge_denied};
    }

    std::int64_t limit() const { return limit_; }
    std::array<std::int64_t, 3> script_arguments() const { return {limit_, period_, tick_}; }

    bool holds(const State& state) const {
        return state.used <= 2 * limit_ && state.before <= 2 * limit_;
    }

    std::optional<State> step(const State* state, std::int64_t now, std::int64_t cost, bool take,
                              Outcome& outcome) const {
        bool moved = false;
        State is = state_at(state, now, moved);
        const bool admissible = cost <= limit_;
        std::optional<State> change;
        outcome.allowed =
            admissible && is.before * ticks_left(is, now) + (is.used + cost) * ticks_ <= capacity();
        if (take && (outcome.allowed || (admissible && charge_denied_))) {
            is.used = std::min(is.used + cost, 2 * limit_);
            change = is;
        } else if (moved) {
            change = is;
        }
        if (outcome.allowed) {
            outcome.retry_after_us = 0;
        } else if (admissible) {
            outcome.retry_after_us = next_chance(is, cost) - now;
        }
        fill_rest(outcome, is, now);
        return change;
    }

    std::optional<State> give_back(const State& state, std::int64_t now, std::int64_t n,
                                   Outcome& outcome) const {
        bool moved = false;
        State is = state_at(&state, now, moved);
        is.used -= std::min(n, 2 * limit_);
        // A refund beyond this window's hits is taken from the window before.
        if (is.used < 0) {
            is.before = std::max<std::int64_t>(is.before + is.used, 0);
            is.used = 0;
        }
        fill_rest(outcome, is, now);
        return is;
    }

  private:
    // The windows as they stand now. `moved`: the clock was set back, and the state lay ahead.
    State state_at(const State* state, std::int64_t now, bool& moved) const {
        const std::int64_t start = now - now % period_;
        if (state != nullptr && now < state->start + period_) {
            // After a clock step back, the counts are of the window of the present time.
            moved = lies_ahead(state->start, now);
            return {moved ? start : state->start, state->used, state->before};
        }
        if (state != nullptr && now < state->start + 2 * period_) {
            return {state->start + period_, 0, state->used};
        }
        return {start, 0, 0};
    }
    std::int64_t capacity() const { return limit_ * ticks_ + slack_; }
    // Of the window before, the ticks that are still within a period.
    std::int64_t ticks_left(const State& is, std::int64_t now) const {
        return ticks_ - std::max<std::int64_t>(now - is.start, 0) / tick_;
    }
    void fill_rest(Outcome& outcome, const State& is, std::int64_t now) const {
        const std::int64_t weight = is.before * ticks_left(is, now) + is.used * ticks_;
        outcome.remaining = weight < capacity() ? (capacity() - weight) / ticks_ : 0;
        if (is.used > 0) {
            outcome.reset_after_us = is.start + 2 * period_ - now;
        } else {
            outcome.reset_after_us = is.before > 0 ? is.start + period_ - now : 0;
        }
    }

    // Three products of the limit and the ticks are added, two of them of twice the limit when
    // denied hits cost: below 2^53.
    static constexpr std::int64_t kMostUnits = std::int64_t{1} << 50;

    SlidingWindow(const Rate& rate, bool charge_denied)
        : limit_(rate.limit),
          period_(rate.period.count()),
          tick_(divide_up(period_, kMostUnits / limit_)),
          ticks_(divide_up(period_, tick_)),
          slack_((ticks_ - 1) / 2),
          charge_denied_(charge_denied) {}

    // When a hit that is denied now will have room.
    std::int64_t next_chance(const State& is, std::int64_t cost) const {
        // In this window, when the share of the window before has fallen far enough.
        if (is.before > 0 && is.used + cost <= limit_) {
            const std::int64_t fitting = ((limit_ - is.used - cost) * ticks_ + slack_) / is.before;
            if (fitting > 0) return is.start + (ticks_ - std::min(fitting, ticks_)) * tick_;
        }
        // In the next window, when the share of this window has.
        std::int64_t fitting = ticks_;
        if (is.used > 0) fitting = std::min(((limit_ - cost) * ticks_ + slack_) / is.used, ticks_);
        return is.start + period_ + (fitting > 0 ? (ticks_ - fitting) * tick_ : period_);
    }

    std::int64_t limit_;
    std::int64_t period_;  // In microseconds.
    std::int64_t tick_;    // In microseconds.
    std::int64_t ticks_;   // In a period.
    std::int64_t slack_;   // The largest fraction of a hit that rounds down, in ticks.
    bool charge_denied_;
};

}  // namespace

constinit const LimiterAlgorithm kSlidingWindow = stepped<SlidingWindow>({
    .algorithm = Algorithm::sliding_window,
    .name = "sliding_window",
    .promise = "at most the limit in each window of the clock, twice it in any period",
    .window = WindowKind::weighted_clock,
    .takes_charge_denied = true,
});

}  // namespace hotcount
