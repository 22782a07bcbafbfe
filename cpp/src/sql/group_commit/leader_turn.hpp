// One leader's turn: its transactions, from a lease to the outcome of every write of its group.
#pragma once

#include <hotcount/detail/sql/transaction.hpp>
#include <unordered_set>

#include "queue.hpp"

namespace hotcount::sql {

class LeaderTurn final : public BatchTurn {
  public:
    /// `own`: the write of the caller that leads; null for a thread of the pool.
    LeaderTurn(GroupQueue& queue, const QueuedWrite* own, Deadline deadline)
        : queue_(queue), own_(own), deadline_(deadline) {
        retry_.emplace(*queue.database_, deadline);
    }
    /// The held thread's.
    LeaderTurn(GroupQueue& queue, Deadline deadline, bool waits)
        : LeaderTurn(queue, nullptr, deadline) {
        in_held_thread_ = true;
        waits_ = waits;
    }

    /// A transaction, begun. Before the group is taken.
    Result<void> begin();
    /// Writes the groups. Sets the error of each of their writes, or that it is to be written
    /// again, unless awaits_commit().
    void run(std::vector<std::shared_ptr<WriteGroup>> groups);
    /// There is no transaction to be had.
    void fail(const std::vector<std::shared_ptr<WriteGroup>>& groups, const Error& error);
    /// The deadline passed before COMMIT was answered, and others have more time: resume() or
    /// forgo().
    bool awaits_commit() const { return doubt_.has_value(); }
    bool awaits_commit_of(const QueuedWrite& write) const;
    /// Goes on with run() for those others, until the last of their deadlines, in whatever thread.
    void resume();
    /// Nobody waits for the answer: the outcome is unknown to all.
    void forgo();

    // BatchTurn
    Deadline deadline() const override { return deadline_; }
    bool seal() override;
    bool is_alone() override;
    Duration waits_for() const override;
    bool is_retry() const override { return in_held_thread_; }
    Alone alone(bool read_committed) override;

  private:
    using Writes = GroupQueue::Writes;
    using Batch = std::vector<std::shared_ptr<QueuedWrite>>;

    Result<void> begin_once();
    void write_batch(Writes batch);
    Result<void> attempt(Writes batch);
    Result<void> write_in_transaction(Writes batch);
    Result<void> write_and_commit(Writes batch);
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
    bool in_held_thread_{false};
    bool waits_{false};
    std::vector<std::shared_ptr<WriteGroup>> groups_{};
    std::optional<Retry> retry_{};
    std::optional<Lease> lease_{};
    bool begun_{false};
    bool reconnected_{false};
    Writes attempted_{};        // The last attempt's.
    bool members_left_{false};  // Which it found.
    bool defers_{false};        // What has not been written is for another leader.
    bool was_cancelled_{false};
    // What was left for later turns shares these: what follows does so too.
    std::unordered_set<std::uint64_t> set_aside_{};
    // Whose COMMIT was not answered at the deadline, and what is told if it never is.
    Batch awaited_{};
    Batch after_awaited_{};
    std::optional<Error> doubt_{};
    bool resumes_{false};  // The next attempt is to wait on for that COMMIT.
};

}  // namespace hotcount::sql
