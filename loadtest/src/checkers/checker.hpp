// Compares the attempted votes with the stored ones: lost, doubled and ghost votes, wrong counts.
//
// The functions are pure; audit.hpp reads their arguments. A vote is a state, so for each
// (item, user) the audit works out which final states the answers allow:
//
//   acknowledged    took effect at some moment between sent and done
//   unknown         took effect at some moment after sent, or never
//   failed          never took effect
//
// The operation that took effect last decides. An acknowledged operation was not the last one if
// another acknowledged one was sent after it was done. Two that overlap may leave either state.
// The stored state must be one of the allowed states.
//
//   lost      an acknowledged vote (or un-vote) that is not there, or is missing from a count
//   double    more than one row for one (item, user), a row counting more than once, or a count
//             higher than its live votes
//   ghost     a row without an attempt, or with refused attempts only
//
// Each wrong row is reported once: its item's count may agree with the stored rows or with the
// expected rows.
//
// store_checkers.hpp checks limiters and sorted sets, read_checker.hpp the answers to callers.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "load/histogram.hpp"
#include "load/ledger.hpp"

namespace hotcount::loadtest {

/// Saturating sums. A driver may return any number, and a sum that wraps around may look right.
inline std::uint64_t capped_sum(std::uint64_t a, std::uint64_t b) {
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
inline std::int64_t capped_sum(std::int64_t a, std::int64_t b) {
    std::int64_t sum = 0;
    if (!__builtin_add_overflow(a, b, &sum)) return sum;
    return b > 0 ? INT64_MAX : INT64_MIN;
}
inline std::int64_t capped_difference(std::int64_t a, std::int64_t b) {
    std::int64_t difference = 0;
    if (!__builtin_sub_overflow(a, b, &difference)) return difference;
    return b < 0 ? INT64_MAX : INT64_MIN;
}
/// The absolute difference of two numbers.
inline std::uint64_t distance(std::int64_t a, std::int64_t b) {
    const auto [least, most] = std::minmax(a, b);
    return static_cast<std::uint64_t>(most) - static_cast<std::uint64_t>(least);
}

/// A vote or un-vote that was sent. An operation still `sent` counts as unknown.
struct Attempt {
    std::int64_t item;
    std::int64_t user;
    std::int64_t value;
    std::int64_t sent_ns;
    std::int64_t done_ns;
    Status status;
};

struct VoteRow {
    std::int64_t item;
    std::int64_t user;
    std::int64_t value;
};

/// The two counts of an item. Empty if the item has no row or count() gave no answer.
struct ItemCount {
    std::int64_t item;
    std::optional<std::int64_t> stored;   ///< item.vote_count
    std::optional<std::int64_t> counted;  ///< Votes::count()
};

/// Acknowledged writes that a server need not have copied to the one that replaced it.
struct MayLose {
    struct OfItem {
        std::uint64_t writes{0};
        std::uint64_t takes{0};  ///< Writes among them that added -1 to a counter.
    };
    std::uint64_t writes{0};
    std::unordered_map<std::int64_t, OfItem> items{};
    void add(const MayLose& more);
};

/// A counter that no order of the acknowledged adds explains.
struct CounterOff {
    std::int64_t item;
    std::uint64_t high;  ///< Its distance above the highest value that the adds allow.
    std::uint64_t wrong_answers;
};

struct AuditResult {
    // Attempted votes and un-votes, in the whole run.
    std::uint64_t acknowledged{0};
    std::uint64_t failed{0};
    std::uint64_t unknown{0};
    std::uint64_t unsent{0};
    std::uint64_t queued{0};   ///< Acknowledged writes that waited in a retry queue.
    std::uint64_t refused{0};  ///< Acknowledged writes answered with a refusal: denied, absent.
    // The stored state.
    std::uint64_t rows{0};
    std::uint64_t live{0};  ///< Rows with val <> 0.
    std::int64_t sum{0};    ///< Of all counts, for counters.
    std::uint64_t items{0};
    // Answers to callers: read_checker.hpp.
    std::uint64_t casts{0};
    std::uint64_t reads{0};
    std::uint64_t reads_never_right{0};  ///< Right at no moment; staleness_ns has the other reads.
    Histogram staleness_ns{};
    Histogram versions_behind{};
    /// Reads that returned less than a read answered before they were sent, although removals in
    /// between do not explain the difference.
    std::uint64_t reads_went_back{0};
    // Findings.
    std::uint64_t lost_rows{0};
    std::uint64_t double_rows{0};
    std::uint64_t ghost_rows{0};
    std::uint64_t stored_low{0};   ///< Votes missing from item.vote_count, over all items.
    std::uint64_t stored_high{0};  ///< Votes that item.vote_count has too many, over all items.
    std::uint64_t counted_low{0};  ///< Votes missing from Votes::count(), over all items.
    std::uint64_t counted_high{0};
    /// Distances between counts and live rows, summed. A wrong row adds to it beside a right count.
    std::uint64_t counts_off{0};
    /// Acknowledged writes missing since a server was replaced; set by allow_failover().
    std::uint64_t lost_in_failover{0};
    std::uint64_t drift{0};           ///< Votes by which counts are off that may drift.
    std::uint64_t wrong_answers{0};   ///< Values after an add that no order of the adds gives.
    std::uint64_t over_admitted{0};   ///< Hits above what the algorithm admits.
    std::uint64_t wrong_refusals{0};  ///< Writes refused although the rules admit them.
    std::uint64_t keys_without_ttl{0};
    std::uint64_t rogue_sets{0};      ///< Stored sets that were never made or have expired.
    std::uint64_t late_writes{0};     ///< Upserts answered `applied` after their set had expired.
    std::uint64_t wrong_scores{0};    ///< Scores that are not the last one written.
    std::uint64_t stale_reads{0};     ///< Reads staler than their strategy promises.
    std::uint64_t wrong_reads{0};     ///< Reads right at no moment, against the promise.
    std::uint64_t backward_reads{0};  ///< Reads that went back or ran ahead, though exact.
    std::uint64_t wrong_casts{0};     ///< Casts whose answers no order of the casts gives.
    /// Breaches that the contract of the strategy allows.
    std::uint64_t allowed_breaches{0};
    std::vector<CounterOff> counters_off{};
    std::vector<std::string> examples{};  ///< The first few findings, in words.

    // The two counts are two views of one number: a vote missing from both is one vote.
    std::uint64_t lost() const { return capped_sum(lost_rows, std::max(stored_low, counted_low)); }
    std::uint64_t doubled() const {
        return capped_sum(double_rows, std::max(stored_high, counted_high));
    }
    std::uint64_t ghost() const { return ghost_rows; }
    bool counts_agree() const {
        return (stored_low | stored_high | counted_low | counted_high | counts_off) == 0;
    }
    /// Clears the findings about counts, where a contract promises nothing about counts.
    void forget_counts() { stored_low = stored_high = counted_low = counted_high = counts_off = 0; }
    /// Allows for acknowledged writes that a failover may have lost. If no more are missing than
    /// `may_lose` has, they and the wrong answers that follow from them are allowed breaches. A
    /// counter that is too high by at most its lost adds of -1 lacks them: no add counted twice.
    void allow_failover(const MayLose& may_lose);
    /// Reads whose number had been right before they were sent, but no longer was.
    std::uint64_t reads_stale() const { return staleness_ns.count() - staleness_ns.count_in(0); }
    std::uint64_t told_wrong() const {
        return stale_reads + wrong_reads + backward_reads + wrong_casts;
    }
    /// The sum of all kFindings.
    std::uint64_t breaches() const;
    /// True if the only findings are breaches that the contract allows.
    bool passed() const {
        return lost() == 0 && doubled() == 0 && ghost() == 0 && breaches() == allowed_breaches;
    }

    /// passed, allowed or broken.
    std::string_view word() const;
    /// All findings, as one clause.
    std::string findings() const;

    void example(std::string sentence);
    void add(const AuditResult& part);

    static constexpr std::size_t kMostExamples = 10;
};

/// A kind of breach, other than lost, double and ghost votes. A contract may allow it.
struct Finding {
    std::uint64_t AuditResult::*count;
    std::string_view words;
};
extern const std::array<Finding, 13> kFindings;

/// The states that attempts on one (item, user) may have left. Values are few: 0 and what was cast.
class AllowedStates {
  public:
    /// Attempts of one (item, user), none of them failed.
    explicit AllowedStates(std::span<const Attempt> attempts);
    bool allows(std::int64_t value) const;
    std::int64_t least() const { return *std::min_element(values_.begin(), values_.end()); }
    std::int64_t most() const { return *std::max_element(values_.begin(), values_.end()); }
    std::string describe() const;

  private:
    void allow(std::int64_t value);
    std::vector<std::int64_t> values_;
};

/// Checks votes, item by item.
///
/// `attempts` in any order; `rows` and `counts` in ascending order, of the same items.
void check_votes(std::vector<Attempt> attempts, std::span<const VoteRow> rows,
                 std::span<const ItemCount> counts, AuditResult& result);

/// Sums of the attempts on one counter.
struct CounterBounds {
    std::int64_t acknowledged{0};
    std::int64_t unknown_up{0};    ///< Sum of the positive unknown amounts.
    std::int64_t unknown_down{0};  ///< Sum of the negative unknown amounts.
    bool attempted{false};
};

/// An acknowledged add: its amount (1 or -1) and the value that it returned.
struct AddAnswer {
    std::int32_t added;
    std::int64_t returned;
};

/// Counts the returned values of one key's adds that no order of these adds can give. All of the
/// key's adds must be known and lead from 0 to `value`: the steps up to a number less the steps
/// down from it must be 1 for 1 .. `value`, -1 for `value` + 1 .. 0, and 0 elsewhere.
std::uint64_t wrong_answers(std::span<const AddAnswer> adds, std::int64_t value);

/// Counts values without a predecessor of their own, for a key that may expire and begin anew any
/// number of times. `told`: the values that adds of 1 returned; `value`: the stored value. Each
/// number must have been returned at least as often as the next one.
std::uint64_t answers_without_predecessor(std::vector<std::int64_t> told, std::int64_t value);

/// Checks one counter: its value lies between what was acknowledged and that plus what is unknown.
void check_counter(std::int64_t item, std::int64_t value, const CounterBounds& bounds,
                   AuditResult& result);

}  // namespace hotcount::loadtest
