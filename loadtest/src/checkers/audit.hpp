// Reads the stored state and lets checker.hpp compare it with the ledger.
//
// The audit reads rows and item.vote_count with SQL statements of its own, because an audit through
// the strategy under test would repeat its errors. It also calls Votes::count() and checks that
// result. No other process may write meanwhile.
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
    /// For items 1 .. items; records of other items in a damaged ledger are skipped.
    CallsByItem(const Ledger& ledger, std::uint64_t items, bool with_reads = false);

    /// Indices into the ledger, in the order of the plan: the writes that were or may have been sent,
    /// and with `with_reads` the reads.
    std::span<const std::uint64_t> of(std::uint64_t item) const {
        return std::span{indices_}.subspan(first_[item - 1], first_[item] - first_[item - 1]);
    }
    /// Adds the numbers of writes that were acknowledged, failed, unknown and never sent.
    void count_into(AuditResult& result) const;

  private:
    std::vector<std::uint64_t> first_;  // Item n's first index is at n - 1; one more for the end.
    std::vector<std::uint64_t> indices_;
    AuditResult counts_{};
};

/// Attempts (48 bytes each) and rows (24 bytes) held at once: about 300 MB.
inline constexpr std::uint64_t kMostAttempts = 4'000'000;

/// Reads the rows of the items from `first` to `last` and their counts, each in ascending order.
using VoteSource =
    std::function<Result<void>(std::int64_t first, std::int64_t last, std::vector<VoteRow>& rows,
                               std::vector<ItemCount>& counts)>;

/// Audits votes. Call it after votes.flush(). Processes the items in parts of at most `most_attempts`
/// (one item is never split), so that memory is bounded however long the ledger is.
///
/// `ids`: the ids of items 1, 2, ... in ascending order, for the user's own tables; other rows are
/// skipped. Empty: item numbers are ids.
Result<AuditResult> audit_votes(const Ledger& ledger, sql::Database& database, Votes& votes,
                                std::uint64_t most_attempts = kMostAttempts,
                                std::span<const std::int64_t> ids = {});
/// The quoted SQL name of a table with its schema, and with `suffix` appended to the name.
std::string quoted_table(const std::string& name, const std::string& suffix = {});
/// Audits votes from a source other than the library's tables.
Result<AuditResult> audit_votes(const Ledger& ledger, const VoteSource& source,
                                std::uint64_t most_attempts = kMostAttempts);

/// `values`: the stored values of items 1, 2, ... With `told_values` it also compares the values that
/// adds returned, for keys whose adds were all answered.
AuditResult audit_counters(const Ledger& ledger, std::span<const std::int64_t> values,
                           bool told_values = true);

/// For counters whose keys expire under the load, so that their values are no sums. Each life of a
/// key counts 1, 2, 3 ..., so if an add returned n, another one returned n - 1 or was not answered,
/// and a stored value was returned by some add. Only for adds of 1.
AuditResult audit_mortal_counters(const Ledger& ledger, std::span<const std::int64_t> values);

/// An error if the tables contain votes or counts, which the audit could not tell from the run's.
Result<void> refuse_used_tables(sql::Database& database, const VotesOptions& options);

/// True if no write in the ledger was ever sent: there is nothing to check.
bool nothing_was_sent(const Ledger& ledger);

/// Lets read_checker.hpp check the answers in a ledger. It does not read the store, whose present
/// state says nothing about earlier answers.
///
/// Adds its findings to `result`. Memory: 8 bytes for each call, and the calls on one item.
void audit_answers(const Ledger& ledger, const AnswerRules& rules, AuditResult& result);

}  // namespace hotcount::loadtest
