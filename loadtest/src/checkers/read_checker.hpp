// Compares what callers were told with what they can have been told.
//
// A write took effect at some moment between sent and done, one without an answer at some moment after
// sent or never. So at each moment an item's count lies between two bounds, and a read is right if its
// number lay between them at some moment between its sending and its answer. For another number:
//
//   staleness         how long before the read was sent its number was right for the last time
//   versions behind   how many acknowledged writes that changed the count it lacks
//   never right       no moment gives the number
//   went back         a read that was answered before it was sent had told more, and fewer votes or
//                     adds can have been taken away since that one was sent
//   ran ahead         that one had told less, and fewer votes or adds can have been added since it was
//                     sent
//
// A caller of a cast is told the user's vote before it and after it. Some order of the user's casts on
// the item must give what all of them were told: each alone must be able to follow another, and at each
// moment the votes that were told to be set and the votes that were told to be taken back must leave the
// user with one vote or none.
//
// Pure functions of values, in one pass over the calls of an item in the order of time. All times are of
// one clock.
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <optional>
#include <span>
#include <vector>

#include "checker.hpp"

namespace hotcount::loadtest {

struct Read {
    std::int64_t number;
    std::int64_t sent_ns;
    std::int64_t done_ns;
    bool exact;  ///< The answer was marked as exact.
};

/// The rules for the answers to reads and casts of a strategy.
struct AnswerRules {
    std::uint64_t items{0};  ///< They are 1 .. items.
    bool adds{false};        ///< A write adds its value; otherwise it sets the vote of its user.
    /// The largest staleness of a read; 0: none. Empty: no bound, but a read counts no write that
    /// was never sent. A read that was marked as exact must be exact.
    std::optional<Duration> reads_within{};
    bool may_be_wrong{
        false};  ///< The contract states all that is found, so that it breaks nothing.
    /// The count is moved after the vote was committed, by a step for each vote that changed. So the
    /// step of a caller who is held up comes late, and a count may have any of the steps without the
    /// others: -1, if a vote's is missing and that of its un-vote is there.
    bool step_by_step{false};
};

/// Checks the reads of one item, in any order. `writes` are all that were sent and did not fail, in any
/// order; votes are 1 or 0, adds 1 or -1.
void check_reads(std::int64_t item, std::span<const Attempt> writes, std::span<const Read> reads,
                 const AnswerRules& rules, AuditResult& result);

/// A cast, and what its caller was told if `told`.
struct CastCall {
    Attempt attempt;
    bool told;
    bool changed;
    bool counted;
    std::int64_t previous;
    std::int64_t now;
};

/// Checks the casts of one user on one item, none of which failed, in any order; sorts them.
void check_casts(std::span<CastCall> casts, const AnswerRules& rules, AuditResult& result);

}  // namespace hotcount::loadtest
