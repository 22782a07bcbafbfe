// One leader's transactions: from a lease to the outcome of every ticket of its group.
#pragma once

#include <hotcount/sql/transaction.hpp>

#include "group_queue.hpp"

namespace hotcount::sql {

class GroupWrite {
  public:
    /// `own`: the ticket of the caller that leads; null for a thread of the pool.
    GroupWrite(GroupQueue& queue, const Ticket* own, Deadline deadline)
        : queue_(queue), own_(own), deadline_(deadline), retry_(*queue.database_, deadline) {}

    /// A transaction, begun. Before the group is taken.
    Result<void> begin();
    /// Writes the group. Sets the error of each of its tickets but those of put_off().
    void run(TicketGroup& group);
    /// In order: to be written by another leader, because this one's deadline has passed.
    const std::vector<std::shared_ptr<Ticket>>& put_off() const { return put_off_; }

  private:
    using Tickets = GroupQueue::Tickets;

    Result<void> begin_once();
    void write(TicketGroup& group, Tickets batch);
    Result<void> attempt(TicketGroup& group, Tickets batch, bool& left);
    bool close_doors(TicketGroup& group);
    std::vector<std::shared_ptr<Ticket>> without_excused(Tickets batch);
    void settle(Tickets batch, const Error& error);
    void leave_to_others(Tickets batch, const Error& error);

    GroupQueue& queue_;
    const Ticket* const own_;
    const Deadline deadline_;
    Retry retry_;
    std::optional<Lease> lease_{};
    bool begun_{false};
    bool reconnected_{false};
    std::vector<std::shared_ptr<Ticket>> put_off_{};
};

}  // namespace hotcount::sql
