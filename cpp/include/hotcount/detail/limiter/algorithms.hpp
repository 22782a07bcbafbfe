// The limiters' arithmetic: (state, now, cost) in, (state, decision) out. No I/O, no clock.
//
//   fixed_window   a = the window's start, b = what was admitted in it
//   gcra           a = when b was true,    b = the debt
//
// Times are integer microseconds. gcra counts its debt in units chosen so that nothing is ever
// rounded: a hit costs `token` units, each microsecond pays `refill` of them back, and the two are
// the period and the limit divided by what they share. So the long-run rate is the configured one
// exactly, at 1 a day as at a million a second.
//
// This is what the memory store runs; the Lua scripts do the same in doubles, which is why every
// intermediate stays below 2^53: a rate for which one would not is refused by make_plan.
// tests/contract/limiter_vectors.json holds both to the same answers.
#pragma once

#include <cstdint>
#include <hotcount/detail/limiter/rate.hpp>
#include <hotcount/memory.hpp>
#include <hotcount/result.hpp>
#include <optional>

namespace hotcount {

using LimitState = memory::LimitState;

/// Where a fixed window begins.
enum class Align : std::uint8_t {
    clock,  ///< At multiples of the period since the epoch: all keys' windows end together.
    first,  ///< At the key's first hit.
};

/// A rate as the arithmetic needs it.
struct Plan {
    std::int64_t limit{1};   ///< What an idle key admits at once.
    std::int64_t period{1};  ///< Microseconds.
    std::int64_t token{1};   ///< gcra: debt of one hit.
    std::int64_t refill{1};  ///< gcra: debt paid back in a microsecond.
    Align align{Align::clock};
    /// Denied hits cost as admitted ones do, up to twice the limit: who keeps knocking waits
    /// longer. A cost above the limit is never charged.
    bool charge_denied{false};
};

Result<Plan> plan_gcra(const Rate& rate, bool charge_denied);
Result<Plan> plan_window(const Rate& rate, Align align, bool charge_denied);

/// A decision in the arithmetic's own terms.
struct Verdict {
    bool allowed;
    std::int64_t remaining;
    std::optional<std::int64_t> retry_after_us;  ///< None: never.
    std::int64_t reset_after_us;                 ///< 0: the state is worth nothing any more.
    bool untracked{false};                       ///< Admitted where there was no room to count it.
};

struct Step {
    Verdict verdict;
    /// To keep for reset_after_us; none where nothing changed.
    std::optional<LimitState> state;
};

/// A hit of `cost` (1 or more) at `now`; no state where the key is absent. A clock that went
/// backwards stands still. With `take` false only looks: `remaining` is what stands, no state.
Step step_fixed_window(const Plan& plan, std::optional<LimitState> state, std::int64_t now,
                       std::int64_t cost, bool take);
Step step_gcra(const Plan& plan, std::optional<LimitState> state, std::int64_t now,
               std::int64_t cost, bool take);

}  // namespace hotcount
