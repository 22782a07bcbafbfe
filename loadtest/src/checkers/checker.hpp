// Compares what was attempted with what is there: lost, doubled and ghost votes, and wrong counts.
//
// Pure functions of values; audit.hpp reads those values. A vote is a state, so for each
// (item, user) the audit works out which final states the answers allow:
//
//   acknowledged    took effect at some moment between sent and done
//   unknown         took effect at some moment after sent, or never
//   failed          never took effect
//
// The operation that took effect last decides. An acknowledged operation was not the last one if
// another acknowledged one was sent after it was done. Two that overlap may leave either state.
// The state that is found must be one of those.
//
//   lost      an acknowledged vote (or un-vote) that is not there, or is missing from a count
//   double    more than one row for one (item, user), a row counting more than once, or a count
//             higher than its live votes
//   ghost     a row that nobody attempted, or every attempt of which was refused
//
// A wrong row is found once: a count may go with the rows that are there, or with those that should
// be.
//
// What limiters and sorted sets can do wrong is in store_checkers.hpp, what
// callers were told in read_checker.hpp.
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

/// Sums that stay at the end of their range. A driver may give any number, and a sum that wraps around
/// may look right.
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
/// How far two numbers are apart.
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

/// What an item's count says. None if there is no such row or no such answer.
struct ItemCount {
    std::int64_t item;
    std::optional<std::int64_t> stored;   ///< item.vote_count
    std::optional<std::int64_t> counted;  ///< Votes::count()
};

/// Acknowledged writes that a server need not have copied to the one that replaced it.
struct MayLose {
    struct OfItem {
        std::uint64_t writes{0};
        std::uint64_t takes{0};  ///< Those of them that added -1 to a counter.
    };
    std::uint64_t writes{0};
    std::unordered_map<std::int64_t, OfItem> items{};
    void add(const MayLose& more);
};

/// A counter that no order of the acknowledged adds explains.
struct CounterOff {
    std::int64_t item;
    std::uint64_t high;  ///< By how much it is above all that they allow.
    std::uint64_t wrong_answers;
};

struct AuditResult {
    // What was attempted: votes and un-votes, in the whole run.
    std::uint64_t acknowledged{0};
    std::uint64_t failed{0};
    std::uint64_t unknown{0};
    std::uint64_t unsent{0};
    std::uint64_t queued{0};   ///< Of those acknowledged, the ones that waited in a retry queue.
    std::uint64_t refused{0};  ///< Of those acknowledged, answered with a no: denied, absent.
    // What is there.
    std::uint64_t rows{0};
    std::uint64_t live{0};  ///< Rows with val <> 0.
    std::int64_t sum{0};    ///< Of all counts, for counters.
    std::uint64_t items{0};
    // What callers were told: read_checker.hpp.
    std::uint64_t casts{0};
    std::uint64_t reads{0};
    std::uint64_t reads_never_right{0};  ///< Numbers that no moment gives; all others are in these:
    Histogram staleness_ns{};
    Histogram versions_behind{};
    /// A read that was sent after it was answered had told more, and what was taken away meanwhile
    /// does not explain it.
    std::uint64_t reads_went_back{0};
    // What is wrong.
    std::uint64_t lost_rows{0};
    std::uint64_t double_rows{0};
    std::uint64_t ghost_rows{0};
    std::uint64_t stored_low{0};   ///< Votes missing from item.vote_count, over all items.
    std::uint64_t stored_high{0};  ///< Votes too many in it.
    std::uint64_t counted_low{0};  ///< The same for Votes::count().
    std::uint64_t counted_high{0};
    /// How far counts are off the live rows, also where the row is what is wrong and not the count.
    std::uint64_t counts_off{0};
    /// Acknowledged, and not there: on a server that was replaced. allow_failover() says so.
    std::uint64_t lost_in_failover{0};
    std::uint64_t drift{0};           ///< Of counts that their strategy lets drift.
    std::uint64_t wrong_answers{0};   ///< Values after an add that no order of the adds gives.
    std::uint64_t over_admitted{0};   ///< Hits above what the algorithm admits.
    std::uint64_t wrong_refusals{0};  ///< Refused, although nothing stood against it.
    std::uint64_t keys_without_ttl{0};
    std::uint64_t rogue_sets{0};      ///< There, though never made or already expired.
    std::uint64_t late_writes{0};     ///< Upserts answered `applied` after their set had expired.
    std::uint64_t wrong_scores{0};    ///< Scores that are not the last one written.
    std::uint64_t stale_reads{0};     ///< Staler than their strategy promises.
    std::uint64_t wrong_reads{0};     ///< Never right, where it promises more than that.
    std::uint64_t backward_reads{0};  ///< Went back or ran ahead, where reads promise to be exact.
    std::uint64_t wrong_casts{0};     ///< Told of votes before and after that no order gives.
    /// Of those from drift on, the ones that the contract of the strategy allows.
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
    /// What is said of counts is that their strategy makes no promise of them.
    void forget_counts() { stored_low = stored_high = counted_low = counted_high = counts_off = 0; }
    /// A failover may have lost these acknowledged writes: up to there they are no breach, and what
    /// callers were told before is not held against what they were told since. A counter that is too
    /// high by no more than its lost -1 lacks these, and no add counted twice.
    void allow_failover(const MayLose& may_lose);
    /// Whose number had been right before they were sent, and was not any more.
    std::uint64_t reads_stale() const { return staleness_ns.count() - staleness_ns.count_in(0); }
    std::uint64_t told_wrong() const {
        return stale_reads + wrong_reads + backward_reads + wrong_casts;
    }
    /// All of kFindings.
    std::uint64_t breaches() const;
    /// Nothing is wrong but what the contract states.
    bool passed() const {
        return lost() == 0 && doubled() == 0 && ghost() == 0 && breaches() == allowed_breaches;
    }

    /// passed, allowed or broken.
    std::string_view word() const;
    /// All that is wrong, as one clause.
    std::string findings() const;

    void example(std::string sentence);
    void add(const AuditResult& part);

    static constexpr std::size_t kMostExamples = 10;
};

/// What breaks a contract, unless that allows it, besides votes that are lost, double or ghosts.
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

/// What the attempts on one counter add up to.
struct CounterBounds {
    std::int64_t acknowledged{0};
    std::int64_t unknown_up{0};    ///< Sum of the positive unknown amounts.
    std::int64_t unknown_down{0};  ///< Sum of the negative ones.
    bool attempted{false};
};

/// An add that was acknowledged: what it added (1 or -1) and the value it was told.
struct AddAnswer {
    std::int32_t added;
    std::int64_t returned;
};

/// How many of the values that the adds of one key were told no order of them can give. All of the
/// key's adds must be known and lead from 0 to `value`: each step up to a value, less the steps
/// down from it, must come to one below the final value and to none above it.
std::uint64_t wrong_answers(std::span<const AddAnswer> adds, std::int64_t value);

/// The same for a key that expires and begins anew, any number of times: how many of the values that
/// adds of 1 were told, and `value` that is there, have no predecessor of their own. Each number must
/// have been told at least as often as the next one.
std::uint64_t answers_without_predecessor(std::vector<std::int64_t> told, std::int64_t value);

/// Checks one counter: its value lies between what was acknowledged and that plus what is unknown.
void check_counter(std::int64_t item, std::int64_t value, const CounterBounds& bounds,
                   AuditResult& result);

}  // namespace hotcount::loadtest
