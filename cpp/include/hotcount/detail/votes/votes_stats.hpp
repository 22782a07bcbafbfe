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

/// What this object has done in this process, and what waits in the tables.
struct VotesStats {
    std::uint64_t votes{0};   ///< Casts and retracts that were acknowledged, repeats among them.
    std::uint64_t failed{0};  ///< That ended with an error.
    /// Transactions that votes shared (batched, cached), and votes in them: those that were written
    /// again after a refusal or a deadlock are counted again.
    std::uint64_t batches{0};
    std::uint64_t batched_votes{0};
    std::uint64_t retries{0};    ///< Transactions of the database begun again: its other users too.
    std::size_t waiting{0};      ///< Votes that wait to be written at this moment.
    std::size_t held_votes{0};   ///< Votes that wait for rows which other transactions hold.
    Duration held_votes_for{0};  ///< How long the first of those rows has been held.
    // How long the calls that wait for votes took: the median and so on, exact to a quarter.
    Duration median{0};
    Duration p99{0};
    Duration longest{0};

    // batched and slotted on the servers; 0 elsewhere.
    std::uint64_t folds{0};        ///< By this process.
    std::uint64_t folded_rows{0};  ///< Journal rows in them.
    /// That ended with an error, or left items out because of one; and those of them since the last
    /// fold that ended well: none while all is well.
    std::uint64_t failed_folds{0};
    std::uint64_t failing_folds{0};
    Duration failing_for{0};        ///< Since the first of failing_folds.
    std::string fold_error{};       ///< The last fold's; empty if it ended well.
    Duration fold_took{0};          ///< The last one.
    std::int64_t pending_rows{0};   ///< Journal rows, of all processes, that are to be folded.
    std::int64_t pending_items{0};  ///< Items with such rows: item.vote_count may be behind.
    /// How old the oldest of them may be: since the last fold of any process, or since this one has
    /// found an item held.
    Duration oldest{0};
    /// Why the journal could not be read: pending_rows, pending_items and oldest are 0 then. Empty
    /// if it was read.
    std::string pending_error{};
    std::int64_t held_items{0};  ///< Whose item.vote_count waits for somebody's transaction.
    /// Items that folds leave out because they fail for them, and why. Their votes are counted
    /// exactly by count(), and not in item.vote_count.
    std::vector<std::pair<sql::Id, std::string>> refused_items{};

    /// Which writes of others triggers count: none, deletes or count; empty if that could not be
    /// read.
    std::string outside_writes{};
    /// Foreign keys by which others change votes and which nothing counts, as
    /// `vote_user_id_fkey (ON DELETE CASCADE)`.
    std::vector<std::string> uncounted_cascades{};

    // With read_url.
    std::uint64_t replica_reads{0};  ///< That the replica has answered.
    /// That it might have answered, and the primary did.
    std::uint64_t replica_fallbacks{0};
    /// Why the replica is not asked, or its answers are not taken; empty while all is well.
    std::string replica_error{};
    Duration replica_lag{0};  ///< How old its last answer was at most.

    // write_behind, of all processes.
    std::int64_t pending_votes{0};  ///< That wait in Redis.
    /// That SQL has refused for good. The last 1,000 of each stream are kept:
    /// docs/reference/storage.md.
    std::int64_t refused_votes{0};
};

/// For a log: trouble that has begun, or has ended.
struct VotesEvent {
    bool is_trouble;
    std::string text;
};

}  // namespace hotcount
