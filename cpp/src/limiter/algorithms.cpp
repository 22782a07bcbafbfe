#include <algorithm>
#include <hotcount/detail/limiter/algorithms.hpp>
#include <numeric>

namespace hotcount {
namespace {

// The integers that a double, and so Lua, holds exactly.
constexpr std::int64_t kExact = std::int64_t{1} << 53;

constexpr std::int64_t divide_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

}  // namespace

Result<Plan> plan_gcra(const Rate& rate, bool charge_denied) {
    HOTCOUNT_TRY(check_rate(rate));
    Plan plan;
    const std::int64_t shared = std::gcd(rate.limit, rate.period.count());
    plan.limit = rate.burst;
    plan.period = rate.period.count();
    plan.token = rate.period.count() / shared;
    plan.refill = rate.limit / shared;
    plan.charge_denied = charge_denied;
    // The largest number of all: a full debt (two where denied hits cost) and the price of one more
    // hit, and a rounding up.
    std::int64_t largest = 0;
    if (__builtin_mul_overflow((charge_denied ? 3 : 2) * plan.limit, plan.token, &largest) ||
        largest >= kExact - plan.refill) {
        return make_error(ErrorCode::config,
                          "the rate " + rate.str() +
                              " cannot be kept exactly: its burst times its period is too large. "
                              "Take a shorter period, a smaller burst or a rounder limit");
    }
    return plan;
}

Result<Plan> plan_window(const Rate& rate, Align align, bool charge_denied) {
    HOTCOUNT_TRY(check_rate(rate));
    if (rate.burst != rate.limit) {
        return make_error(ErrorCode::config, "the rate " + rate.str() +
                                                 " has a burst, which only gcra knows: a window "
                                                 "admits its limit at once");
    }
    Plan plan;
    plan.limit = rate.limit;
    plan.period = rate.period.count();
    plan.align = align;
    plan.charge_denied = charge_denied;
    return plan;
}

Step step_fixed_window(const Plan& plan, std::optional<LimitState> state, std::int64_t now,
                       std::int64_t cost, bool take) {
    std::int64_t start = plan.align == Align::clock ? now - now % plan.period : now;
    std::int64_t used = 0;
    if (state && now < state->a + plan.period) {
        start = state->a;
        used = state->b;
    }
    const std::int64_t left = start + plan.period - now;
    const bool admissible = cost <= plan.limit;
    Step step{};
    step.verdict.allowed = admissible && used + cost <= plan.limit;
    if (take && (step.verdict.allowed || (admissible && plan.charge_denied))) {
        used = std::min(used + cost, 2 * plan.limit);
        step.state = LimitState{start, used};
    }
    step.verdict.remaining = std::max<std::int64_t>(plan.limit - used, 0);
    if (step.verdict.allowed) {
        step.verdict.retry_after_us = 0;
    } else if (admissible) {
        step.verdict.retry_after_us = left;
    }
    step.verdict.reset_after_us = used > 0 ? left : 0;
    return step;
}

Step step_gcra(const Plan& plan, std::optional<LimitState> state, std::int64_t now,
               std::int64_t cost, bool take) {
    const std::int64_t capacity = plan.limit * plan.token;
    std::int64_t at = now;
    std::int64_t debt = 0;
    if (state) {
        at = std::max(now, state->a);
        const std::int64_t elapsed = at - state->a;
        // Compared before it is multiplied: elapsed may be years.
        if (elapsed < divide_up(state->b, plan.refill)) debt = state->b - elapsed * plan.refill;
    }
    const bool admissible = cost <= plan.limit;
    const std::int64_t price = admissible ? cost * plan.token : 0;
    Step step{};
    step.verdict.allowed = admissible && debt + price <= capacity;
    if (take && (step.verdict.allowed || (admissible && plan.charge_denied))) {
        debt = std::min(debt + price, 2 * capacity);
        step.state = LimitState{at, debt};
    }
    step.verdict.remaining = std::max<std::int64_t>((capacity - debt) / plan.token, 0);
    if (step.verdict.allowed) {
        step.verdict.retry_after_us = 0;
    } else if (admissible) {
        step.verdict.retry_after_us = divide_up(debt + price - capacity, plan.refill) + at - now;
    }
    step.verdict.reset_after_us = debt > 0 ? divide_up(debt, plan.refill) + at - now : 0;
    return step;
}

}  // namespace hotcount
