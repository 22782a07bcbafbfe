// One leader's turn: its transactions, from a lease to the outcome of every write of its group.
#pragma once

#include <hotcount/detail/sql/transaction.hpp>
#include <unordered_set>

#include "queue.hpp"

namespace hotcount::sql {

class LeaderTurn final : public BatchTurn {
  public:
    /// `own`: the leading caller's write; null for a thread of the pool.
    LeaderTurn(GroupQueue& queue, const QueuedWrite* own, Deadline deadline)
        : queue_(queue), own_(own), deadline_(deadline) {
        retry_.emplace(*queue.database_, deadline);
    }
    /// A turn of the held thread.
    LeaderTurn(GroupQueue& queue, Deadline deadline, bool waits)
        : LeaderTurn(queue, nullptr, deadline) {
        held_row_wait_ = waits ? kHeldRowWait : Duration{0};
    }

    /// Begins a transaction. Call it before the group is taken.
    Result<void> begin();
    /// Writes the groups. Sets error or again_ of each of their writes, unless awaits_commit().
    void run(std::vector<std::shared_ptr<WriteGroup>> groups);
    /// Call instead of run() if begin() failed.
    void fail(const std::vector<std::shared_ptr<WriteGroup>>& groups, const Error& error);
    /// True if the deadline passed before COMMIT was answered and other members have time left: call
    /// resume() or abandon_commit().
    bool awaits_commit() const { return phase_ == Phase::awaits_commit; }
    bool awaits_commit_of(const QueuedWrite& write) const;
    /// Continues run() for those members until the latest of their deadlines. Any thread may call it.
    void resume();
    /// Gives up on the answer: the outcome is unknown for all members.
    void abandon_commit();

    // BatchTurn
    Deadline deadline() const override { return deadline_; }
    Result<void> seal() override;
    bool is_alone() override;
    Duration waits_for() const override;
    bool is_retry() const override { return held_row_wait_.has_value(); }
    Alone alone(bool read_committed) override;

  private:
    using Writes = GroupQueue::Writes;
    using Batch = std::vector<std::shared_ptr<QueuedWrite>>;

    enum class Phase : std::uint8_t {
        writes,         // The next attempt writes its batch.
        awaits_commit,  // A COMMIT was not answered at the deadline: awaited_ has its writes.
        resumes,        // The next attempt only waits for that COMMIT's answer.
        defers,         // The deadline has passed: unwritten writes are left to another leader.
    };
    // The last attempt.
    struct Attempt {
        Writes writes{};
        bool members_left{false};  // It failed because some of its writes had been withdrawn.
    };
    struct Awaited {
        Batch writes{};  // Those of the COMMIT.
        Batch after{};   // Those behind them: not attempted.
        Error doubt{};   // The error of `writes` if the answer never comes.
    };

    Result<void> begin_once();
    void write_batch(Writes batch);
    Result<void> attempt(Writes batch);
    Result<void> write_in_transaction(Writes batch);
    Result<void> write_and_commit(Writes batch, bool resumes);
    Batch take_unsettled(Writes batch);
    Batch without_followers(Writes batch) const;
    std::optional<Deadline> time_of_others(Writes batch) const;
    bool is_cancelled(const Error& error) const;
    Batch without_withdrawn(Writes batch);
    void defer(Writes batch);
    static void settle(Writes batch, const Error& error);
    Batch settle_lost(Writes batch, const Error& error);
    void leave_to_others(Writes batch, const Error& error);

    GroupQueue& queue_;
    const QueuedWrite* own_;
    Deadline deadline_;
    // In the held thread alone: how long a statement waits for a locked row.
    std::optional<Duration> held_row_wait_{};
    Phase phase_{Phase::writes};
    std::vector<std::shared_ptr<WriteGroup>> groups_{};
    std::optional<Retry> retry_{};
    std::optional<Lease> lease_{};
    bool begun_{false};          // The lease has a transaction in which nothing is written.
    bool reconnected_{false};    // Once in a turn.
    bool was_cancelled_{false};  // An earlier statement of this turn met a locked row.
    Attempt attempt_{};
    // Shared rows of writes that are left to later turns; later writes to them are left too.
    std::unordered_set<std::uint64_t> set_aside_{};
    Awaited awaited_{};
};

}  // namespace hotcount::sql
