// The numbers of Votes::stats() and the events of Votes::take_event().
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/sql.hpp>
#include <string>
#include <utility>
#include <vector>

namespace hotcount {

/// The calls of this object in this process, and the backlog in the tables.
struct VotesStats {
    std::uint64_t votes{0};   ///< Casts and retracts that were acknowledged, repeats among them.
    std::uint64_t failed{0};  ///< Casts and retracts that failed.
    /// Shared transactions (batched, cached), and the votes in them. A vote written twice, after a
    /// refusal or a deadlock, counts twice.
    std::uint64_t batches{0};
    std::uint64_t batched_votes{0};
    /// Retried transactions of the whole Database object, not only of these votes.
    std::uint64_t retries{0};
    std::size_t waiting{0};      ///< Votes that wait to be written at this moment.
    std::size_t held_votes{0};   ///< Votes that wait for rows which other transactions hold.
    Duration held_votes_for{0};  ///< How long the first of those rows has been held.
    // How long the calls that wait for votes took: at most 25 % above the true value.
    Duration median{0};
    Duration p99{0};
    Duration longest{0};

    // batched and slotted on the servers; 0 elsewhere.
    std::uint64_t folds{0};        ///< Folds by this process.
    std::uint64_t folded_rows{0};  ///< Journal rows in them.
    /// Folds that failed or skipped items. failing_folds: those since the last success.
    std::uint64_t failed_folds{0};
    std::uint64_t failing_folds{0};
    Duration failing_for{0};        ///< Since the first of failing_folds.
    std::string fold_error{};       ///< The last fold's error; empty if it succeeded.
    Duration fold_took{0};          ///< Duration of the last fold.
    std::int64_t pending_rows{0};   ///< Journal rows, of all processes, that are to be folded.
    std::int64_t pending_items{0};  ///< Items with such rows: item.vote_count may be behind.
    /// Upper bound of the oldest row's age: the time since the last fold of any process, or since
    /// this process has found an item locked.
    Duration oldest{0};
    /// Why the journal could not be read; pending_rows, pending_items and oldest are 0 then. Empty
    /// if it was read.
    std::string pending_error{};
    /// Items that another transaction has locked, so that vote_count is behind.
    std::int64_t held_items{0};
    /// Items that folds skip because their fold fails, each with its error. count() includes their
    /// votes, item.vote_count does not.
    std::vector<std::pair<sql::Id, std::string>> refused_items{};

    /// Foreign writes that triggers count: none, deletes or count; empty if that could not be read.
    std::string outside_writes{};
    /// Foreign keys whose actions change votes without being counted, such as
    /// `vote_user_id_fkey (ON DELETE CASCADE)`.
    std::vector<std::string> uncounted_cascades{};

    // With read_url.
    std::uint64_t replica_reads{0};  ///< Reads that the replica answered.
    /// Reads that the primary answered although the replica was allowed to.
    std::uint64_t replica_fallbacks{0};
    /// Why the replica is not asked or its answers are rejected; empty if neither is the case.
    std::string replica_error{};
    Duration replica_lag{0};  ///< Upper bound of the age of its last answer.

    // write_behind, of all processes.
    std::int64_t pending_votes{0};  ///< Votes in Redis that are not in SQL yet.
    /// Votes that SQL has refused for good. The last 1,000 of each stream are kept:
    /// docs/reference/storage.md.
    std::int64_t refused_votes{0};
};

/// For a log: the begin or end of a trouble.
struct VotesEvent {
    bool is_trouble;
    std::string text;
};

}  // namespace hotcount
