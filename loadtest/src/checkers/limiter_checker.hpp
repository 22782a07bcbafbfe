// Compares the hits that a limiter admitted with those that its algorithm admits.
//
// A decision was made at some moment between sent and done. A finding is only what holds whatever
// that moment was:
//
//   over-admitted   gcra: more hits inside an interval of length t than burst + rate x t;
//                   windows: more hits than windows could have held
//   wrong refusal   denied, although all that can have been admitted before it, each at the worst
//                   moment, leaves room for it
//
// Pure functions of values, which targets/store_targets.cpp gathers.
#pragma once

#include <cstdint>
#include <hotcount/limiter.hpp>
#include <span>

#include "checker.hpp"

namespace hotcount::loadtest {

struct LimiterHit {
    enum class Kind : std::uint8_t {
        admitted,
        denied,
        maybe,  ///< No answer, or an error: admitted or not.
    };
    std::int64_t sent_ns;
    std::int64_t done_ns;
    Kind kind;
};

/// Where a window may begin.
enum class Windows : std::uint8_t {
    none,            ///< gcra and the buckets have none.
    clock,           ///< At multiples of the period on a clock.
    weighted_clock,  ///< The same; a hit may be denied for what the window before admitted, too.
    sliding,         ///< Everywhere.
    after_first,     ///< At the first hit after the window before has ended.
};

struct LimiterRules {
    Windows windows{Windows::none};
    std::int64_t limit{1};  ///< Of a window; gcra and the buckets: the burst.
    std::int64_t rate_limit{1};
    std::int64_t period_ns{1};
    /// windows on a clock: what to add to the hits' times to get that clock's, and how wrong that
    /// may be.
    std::int64_t clock_offset_ns{0};
    std::int64_t clock_error_ns{0};
    /// The contract states these, so that they break nothing.
    bool may_over_admit{false};
    bool may_refuse{false};
};

/// Checks the hits on one key, in any order; sorts them.
void check_limiter_hits(std::int64_t item, std::span<LimiterHit> hits, const LimiterRules& rules,
                        AuditResult& result);

}  // namespace hotcount::loadtest
