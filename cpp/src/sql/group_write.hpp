// One leader's transactions: from a lease to the outcome of every ticket of its group.
#pragma once

#include <hotcount/sql/transaction.hpp>

#include "group_queue.hpp"

namespace hotcount::sql {

class GroupWrite {
  public:
    /// `own`: the ticket of the caller that leads; null for a thread of the pool.
    GroupWrite(GroupQueue& queue, const Ticket* own, Deadline deadline)
        : queue_(queue), own_(own), deadline_(deadline) {
        retry_.emplace(*queue.database_, deadline);
    }

    /// A transaction, begun. Before the group is taken.
    Result<void> begin();
    /// Writes the group. Sets the error of each of its tickets but those of put_off(), unless
    /// awaits_commit().
    void run(TicketGroup& group);
    /// The deadline passed before COMMIT was answered, and others have more time: resume() or
    /// forgo().
    bool awaits_commit() const { return doubt_.has_value(); }
    bool awaits_commit_of(const Ticket& ticket) const;
    /// Goes on with run() for those others, until the last of their deadlines, in whatever thread.
    void resume(TicketGroup& group);
    /// Nobody waits for the answer: the outcome is unknown to all.
    void forgo();
    /// In order: to be written by another leader, because this one's deadline has passed.
    const std::vector<std::shared_ptr<Ticket>>& put_off() const { return put_off_; }

  private:
    using Tickets = GroupQueue::Tickets;

    Result<void> begin_once();
    void write(TicketGroup& group, Tickets batch);
    Result<void> attempt(TicketGroup& group, Tickets batch, bool& left);
    Result<void> write_and_commit(TicketGroup& group, Tickets batch, bool& left);
    std::optional<Deadline> time_of_others(Tickets batch) const;
    bool close_doors(TicketGroup& group);
    std::vector<std::shared_ptr<Ticket>> without_excused(Tickets batch);
    void settle(Tickets batch, const Error& error);
    void leave_to_others(Tickets batch, const Error& error);

    GroupQueue& queue_;
    const Ticket* own_;
    Deadline deadline_;
    std::optional<Retry> retry_{};
    std::optional<Lease> lease_{};
    bool begun_{false};
    bool reconnected_{false};
    std::vector<std::shared_ptr<Ticket>> put_off_{};
    // Whose COMMIT was not answered at the deadline, and what is told where it never is.
    std::vector<std::shared_ptr<Ticket>> awaited_{};
    std::optional<Error> doubt_{};
    bool resumes_{false};  // The next attempt is to wait on for that COMMIT.
};

}  // namespace hotcount::sql
