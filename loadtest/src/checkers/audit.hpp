// Reads what is really there and lets checker.hpp compare it with the ledger.
//
// Rows and item.vote_count are read straight from SQL, with statements of its own: an audit that
// asked the strategy under test would believe it. Votes::count() is asked too, as one more claim
// to check. Nobody may write meanwhile.
#pragma once

#include <cstdint>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <span>

#include "checker.hpp"
#include "load/ledger.hpp"

namespace hotcount::loadtest {

/// Attempts (48 bytes each) and rows (24 bytes) held at once: about 300 MB.
inline constexpr std::uint64_t kMostAttempts = 4'000'000;

/// The caller has flushed the votes. Works through the items in parts of at most `most_attempts`
/// (one item is never cut), so that memory is bounded however long the ledger is.
Result<AuditResult> audit_votes(const Ledger& ledger, sql::Database& database, Votes& votes,
                                std::uint64_t most_attempts = kMostAttempts);

/// `values` are those of items 1, 2, ... as they stand. Also holds the value that each add was told
/// against the others', on keys all of whose adds were answered.
AuditResult audit_counters(const Ledger& ledger, std::span<const std::int64_t> values);

/// An error where the tables hold votes or counts already: the audit could not tell those from the
/// run's own.
Result<void> refuse_used_tables(sql::Database& database, const VotesOptions& options);

/// True where no write in the ledger was ever sent, so that there is nothing to check.
bool nothing_was_sent(const Ledger& ledger);

}  // namespace hotcount::loadtest
