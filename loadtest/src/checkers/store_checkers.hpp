// Compares the hits that a limiter admitted with those that its algorithm admits.
//
// The store decided at some moment between sent and done. A finding must hold for every such
// moment:
//
//   over-admitted   gcra: an interval of length t has more hits than burst + rate x t;
//                   windows: more hits were admitted than the windows can have held
//   wrong refusal   a hit was denied, although all hits that can have been admitted before it, each
//                   at the worst moment, leave room for it
//
// The functions are pure; targets/store_targets.cpp gathers their arguments.
#pragma once

#include <cstdint>
#include <hotcount/limiter.hpp>
#include <hotcount/live_sets.hpp>
#include <optional>
#include <span>
#include <vector>

#include "checker.hpp"

namespace hotcount::loadtest {

struct LimiterHit {
    enum class Kind : std::uint8_t {
        admitted,
        denied,
        maybe,  ///< No answer, or an error: the store may have admitted it.
    };
    std::int64_t sent_ns;
    std::int64_t done_ns;
    Kind kind;
};

/// The times at which a window may begin.
enum class Windows : std::uint8_t {
    none,            ///< gcra and the buckets have none.
    clock,           ///< At multiples of the period on a clock.
    weighted_clock,  ///< As clock; hits of the previous window may also cause a denial.
    sliding,         ///< Everywhere.
    after_first,     ///< At the first hit after the end of the previous window.
};

struct LimiterRules {
    Windows windows{Windows::none};
    std::int64_t limit{1};  ///< The most hits in a window; gcra and the buckets: the burst.
    std::int64_t rate_limit{1};
    std::int64_t period_ns{1};
    /// Windows on a clock: the difference to add to the hits' times to get that clock's times, and
    /// the error of this difference.
    std::int64_t clock_offset_ns{0};
    std::int64_t clock_error_ns{0};
    // The contract allows findings of this kind.
    bool may_over_admit{false};
    bool may_refuse{false};
};

/// Checks the hits on one key, in any order; sorts them.
void check_limiter_hits(std::int64_t item, std::span<LimiterHit> hits, const LimiterRules& rules,
                        AuditResult& result);

// -- sorted sets (sets_checker.cpp) ---------------------------------------------------------------
//
// Compares sorted sets that have a TTL with the writes and with the lifetime of each set.
//
// The end of a lifetime is known only between two times: the set lives at least until
// `lives_until_ns` and is gone from `dead_from_ns` on. Between the two nothing is a finding.
//
//   rogue set      the set is stored, though create() never made it or it must have expired: an
//                  upsert made it
//   late write     the answer is `applied` at a time when no set can have existed
//   wrong refusal  the answer is not `applied` while the set must have lived
//   wrong score    the stored score is not the last one written
//   lost, ghost    a member was written and is not stored; one is stored and was never written
//
// The functions are pure; target code gathers their arguments.

/// Nanoseconds from the start of the run, as in the ledger.
struct SetLife {
    bool made{false};                        ///< create() made the set.
    std::int64_t lives_until_ns{INT64_MAX};  ///< The set exists before this time.
    std::int64_t dead_from_ns{INT64_MAX};    ///< The set is gone from this time on.
};

struct SetWrite {
    std::int64_t member;
    std::int64_t score;  ///< 0: a remove.
    std::int64_t sent_ns;
    std::int64_t done_ns;
    Status status;
    Upsert answer;  ///< Valid if the status is ok.
};

struct SetMember {
    std::int64_t member;
    std::int64_t score;
};

/// The stored state of a set.
struct SetFound {
    bool expires{false};
    bool anchored{false};              ///< It has the anchor: the member that create() gave it.
    std::vector<SetMember> members{};  ///< Its members, except the anchor.
    std::int64_t looked_ns{0};         ///< A time just before the set was read.
};

/// Checks one set. `may_make_sets`: the contract of the method says that its upserts may make a set
/// that create() did not make.
void check_set(std::int64_t item, const SetLife& life, std::span<const SetWrite> writes,
               const std::optional<SetFound>& found, bool may_make_sets, AuditResult& result);

}  // namespace hotcount::loadtest
