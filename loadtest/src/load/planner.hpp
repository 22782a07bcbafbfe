// Fills the ledger with operations a little ahead of the workers.
//
// A worker claims the next index and asks for its operation. The worker that comes near the planned
// end plans the next chunk, under a lock; the others wait for it only if they have used up what is
// planned. So the operations are made in order, whatever the threads do, and no thread of its own is
// needed.
//
// Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <hotcount/result.hpp>
#include <mutex>
#include <optional>

#include "ledger.hpp"
#include "pacer.hpp"
#include "workload.hpp"

namespace hotcount::loadtest {

/// The value of an un-vote: 0 sets a vote's state, -1 is added to a counter. `numbered`: also 0,
/// and each vote writes the number of its operation, from 1, so that no two write the same value.
enum class UnvoteValue : std::int32_t { set_zero = 0, add_minus_one = -1, numbered = 1 };

class Planner {
  public:
    /// The plan ends before `horizon_ns` in the open loop, and with the ledger in any case.
    Planner(Ledger& ledger, const TrafficSettings& traffic, Schedule schedule,
            std::int64_t horizon_ns, UnvoteValue unvote);

    /// Makes sure that operation `index` is in the ledger; false if the plan ends before it.
    bool reach(std::uint64_t index);

    /// True if the plan ended because the ledger was full, not because its time was over.
    bool ledger_full() const;
    /// The error that stopped planning early, such as a full disk.
    std::optional<Error> error() const;
    /// See Workload.
    std::uint64_t repeated() const;
    /// The time for which callers of reach() planned or waited, summed over all callers.
    std::int64_t spent_ns() const { return spent_ns_.load(std::memory_order_relaxed); }

  private:
    static constexpr std::uint64_t kChunk = 256;  // About 30 us of work.

    bool plan_to(std::uint64_t index);
    void extend();

    Ledger& ledger_;
    Workload workload_;
    Schedule schedule_;
    std::int64_t horizon_ns_;
    UnvoteValue unvote_;
    std::atomic<std::uint64_t> planned_{0};
    std::atomic<bool> ended_{false};
    mutable std::mutex mutex_;
    bool full_{false};
    std::optional<Error> error_{};
    std::atomic<std::int64_t> spent_ns_{0};
};

}  // namespace hotcount::loadtest
