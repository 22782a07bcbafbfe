// Reads what is really there and lets checker.hpp compare it with the ledger.
//
// Rows and item.vote_count are read straight from SQL, with statements of its own: an audit that
// asked the strategy under test would believe it. Votes::count() is asked too, as one more claim
// to check. Nobody may write meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <span>
#include <string>
#include <vector>

#include "checker.hpp"
#include "load/ledger.hpp"
#include "read_checker.hpp"

namespace hotcount::loadtest {

/// The calls of a ledger, item by item, without copying them: eight bytes a call.
class CallsByItem {
  public:
    /// Items 1 .. items; what a damaged ledger has of others is left out.
    CallsByItem(const Ledger& ledger, std::uint64_t items, bool with_reads = false);

    /// Indices into the ledger of the writes that were sent or may have been, and of the reads if they were asked for, in the order of the plan.
    std::span<const std::uint64_t> of(std::uint64_t item) const {
        return std::span{indices_}.subspan(first_[item - 1], first_[item] - first_[item - 1]);
    }
    /// Adds how many of the writes were acknowledged, failed, unknown and never sent.
    void count_into(AuditResult& result) const;

  private:
    std::vector<std::uint64_t> first_;  // Of item n at n - 1; one more for the end.
    std::vector<std::uint64_t> indices_;
    AuditResult counts_{};
};

/// Attempts (48 bytes each) and rows (24 bytes) held at once: about 300 MB.
inline constexpr std::uint64_t kMostAttempts = 4'000'000;

/// Reads the rows of the items from `first` to `last` and their counts, each in ascending order.
using VoteSource =
    std::function<Result<void>(std::int64_t first, std::int64_t last, std::vector<VoteRow>& rows,
                               std::vector<ItemCount>& counts)>;

/// The caller has flushed the votes. Works through the items in parts of at most `most_attempts`
/// (one item is never cut), so that memory is bounded however long the ledger is.
///
/// `ids`: those of the items 1, 2, ... in ascending order, where the tables are the user's own; other rows
/// are left out. None: items are called by their numbers.
Result<AuditResult> audit_votes(const Ledger& ledger, sql::Database& database, Votes& votes,
                                std::uint64_t most_attempts = kMostAttempts,
                                std::span<const std::int64_t> ids = {});
/// A table's name as it stands in SQL, that of its schema before it, with `suffix` at its end.
std::string quoted_table(const std::string& name, const std::string& suffix = {});
/// The same from a source that is none of the library's tables.
Result<AuditResult> audit_votes(const Ledger& ledger, const VoteSource& source,
                                std::uint64_t most_attempts = kMostAttempts);

/// `values` are those of items 1, 2, ... as they stand. Also holds the value that each add was told
/// against the others', on keys all of whose adds were answered, if adds are told values at all.
AuditResult audit_counters(const Ledger& ledger, std::span<const std::int64_t> values,
                           bool told_values = true);

/// Counters whose keys expire under the load, so that their values are no sums. Each life of a key
/// counts 1, 2, 3 ..., so an add that was told n needs another one that was told n - 1, or had no
/// answer; and a value that is there must have been told to somebody. Takes adds of 1 alone.
AuditResult audit_mortal_counters(const Ledger& ledger, std::span<const std::int64_t> values);

/// An error if the tables hold votes or counts already: the audit could not tell those from the
/// run's own.
Result<void> refuse_used_tables(sql::Database& database, const VotesOptions& options);

/// True if no write in the ledger was ever sent: there is nothing to check.
bool nothing_was_sent(const Ledger& ledger);

/// Takes what callers were told out of a ledger and lets read_checker.hpp judge it. Needs nothing but the
/// ledger: what the store holds now says nothing of what it said then.
///
/// Adds what is found to `result`. Bounded memory but for 8 bytes a call, and the calls on one item.
void audit_answers(const Ledger& ledger, const AnswerRules& rules, AuditResult& result);

}  // namespace hotcount::loadtest
