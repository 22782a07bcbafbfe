// Compares the answers that callers got with the answers that were possible.
//
// A write took effect at some moment between sent and done; a write without an answer did so at
// some moment after sent, or never. So at each moment an item's count lies between two bounds. A
// read is right if its number lay between the bounds at some moment between its sending and its
// answer. Of every other read the checker reports:
//
//   staleness         the time from the last moment when its number was right to its sending
//   versions behind   the number of acknowledged changes of the count that it lacks
//   never right       the number was right at no moment
//   went back         an earlier read (answered before this one was sent) returned a larger number,
//                     and too few votes or adds can have been taken away since that one was sent
//   ran ahead         an earlier read returned a smaller number, and too few votes or adds can have
//                     been added since that one was sent
//
// The answer to a cast states the user's vote before and after it. Some order of the user's casts
// on the item must explain all answers. Each cast alone must be able to follow another one. At each
// moment the votes that were set and those that were taken back must leave the user with one vote
// or none.
//
// The functions are pure and take one pass over the calls of an item, in the order of time. All
// times are of one clock.
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
    std::uint64_t items{0};  ///< Items have the numbers 1 .. items.
    bool adds{false};        ///< A write adds its value; otherwise it sets the vote of its user.
    /// The largest staleness of a read; 0: none. Empty: no bound, but a read counts no write that
    /// was never sent. A read that was marked as exact must be exact.
    std::optional<Duration> reads_within{};
    /// The contract allows every finding, so none of them breaks it.
    bool may_be_wrong{false};
    /// A caller changes the count after its vote was committed, by one step for each vote that
    /// changed. A delayed caller's step comes late, so a count may have any of the steps without
    /// the others: it is -1 if the step of an un-vote has arrived and the step of its vote has not.
    bool step_by_step{false};
};

/// Checks the reads of one item, in any order. `writes` has all writes that were sent and did not
/// fail, in any order; votes are 1 or 0, adds 1 or -1.
void check_reads(std::int64_t item, std::span<const Attempt> writes, std::span<const Read> reads,
                 const AnswerRules& rules, AuditResult& result);

/// A cast and, if `told`, the answer that its caller got.
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
