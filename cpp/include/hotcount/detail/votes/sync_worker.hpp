// What brings from a cache to SQL what waits there: counts (strategy cached) or votes
// (write_behind). Votes::sync_worker() makes one.
#pragma once

#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/result.hpp>

namespace hotcount {

/// What one round of a worker did, in items; with write_behind in votes.
struct SyncRound {
    std::int64_t scanned;     ///< Counts, or votes, found in the cache.
    std::int64_t filled;      ///< Given what SQL knew, or a new fencing number.
    std::int64_t saved;       ///< Written to item.vote_count, or to the vote table.
    std::int64_t deleted;     ///< Saved, past retention, and taken out of the cache.
    std::int64_t recounted;   ///< Summed again from the votes: a count was lost or in doubt.
    std::int64_t unsettled;   ///< Not saved as found: for the next round.
    std::int64_t at_risk;     ///< Votes in those, which only the cache has.
    std::int64_t refused{0};  ///< write_behind: votes that SQL refuses for good, set aside.
};

/// Brings the counts, or the votes, of a cache to SQL. Any number may run at once, in threads and
/// processes: each step is fenced, so one that dies or stalls between any two of them loses nothing
/// and overwrites nothing. Thread-safe; a round is one caller's at a time.
class SyncWorker {
  public:
    virtual ~SyncWorker() = default;

    /// Looks at every count in the cache once, or writes the votes that wait there. timeout: for
    /// the whole round; none: 60 seconds.
    virtual Result<SyncRound> run_once(Timeout timeout = {}) = 0;
    /// Rounds until stop(pause) says true; stop waits for as long as it is told and may return
    /// earlier. A round that failed because a server is away is tried again.
    virtual Result<void> run(const std::function<bool(Duration)>& stop) = 0;

    struct Stats {
        std::uint64_t rounds;    ///< That ended well.
        std::uint64_t failed;    ///< That did not.
        SyncRound total;         ///< Sums over all rounds; the last two of the latest round.
        std::string last_error;  ///< Of the last round that failed.
        void fail(const Error& error) {
            ++failed;
            last_error = error.message;
        }
    };
    virtual Stats stats() const = 0;
};

}  // namespace hotcount
