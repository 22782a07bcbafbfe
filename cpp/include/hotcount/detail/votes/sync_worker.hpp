// A worker that saves the counts (strategy cached) or the votes (write_behind) of a cache to SQL.
// Votes::sync_worker() makes one.
#pragma once

#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>

namespace hotcount {

/// The work of one round of a worker, in items; with write_behind in votes.
struct SyncRound {
    std::int64_t scanned;     ///< Counts (or votes) found in the cache.
    std::int64_t filled;      ///< Counts set from SQL, or given a new fencing number.
    std::int64_t saved;       ///< Written to item.vote_count, or to the vote table.
    std::int64_t deleted;     ///< Taken out of the cache: saved, and past retention.
    std::int64_t recounted;   ///< Summed again from the votes: a count was lost or in doubt.
    std::int64_t unsettled;   ///< Left for the next round, because not saved as found.
    std::int64_t at_risk;     ///< Votes in unsettled counts, which only the cache has.
    std::int64_t refused{0};  ///< write_behind: votes set aside, because SQL refuses them for good.
};

/// Saves the counts, or the votes, of a cache to SQL. Any number of workers may run at once, in
/// threads and processes: each step is fenced, so a worker that dies or stalls between two steps
/// loses nothing and overwrites nothing. Thread-safe; only one caller runs a round at a time.
class SyncWorker {
  public:
    virtual ~SyncWorker() = default;

    /// Reads every count in the cache once, or writes the votes that wait there. timeout: for the
    /// whole round, and for each node of a cluster; none: 60 seconds, and 1 second for each
    /// node. The counts or votes of other nodes are saved, and the round fails with the error of
    /// the node.
    virtual Result<SyncRound> run_once(Timeout timeout = {}) = 0;
    /// Runs rounds until stop(pause) returns true; stop waits for `pause` and may return earlier. A
    /// round that failed because a server is unreachable is tried again.
    virtual Result<void> run(const std::function<bool(Duration)>& stop) = 0;

    struct Stats {
        std::uint64_t rounds;    ///< Successful rounds.
        std::uint64_t failed;    ///< Failed rounds.
        SyncRound total;         ///< Sums over all rounds; unsettled and at_risk: the latest round.
        std::string last_error;  ///< The error of the last failed round.
        void fail(const Error& error) {
            ++failed;
            last_error = error.message;
        }
    };
    virtual Stats stats() const = 0;
};

}  // namespace hotcount
