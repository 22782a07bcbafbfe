// The callers of one GroupCommit, in groups, and who leads. See group_commit.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <hotcount/base/event.hpp>
#include <hotcount/base/worker_pool.hpp>
#include <hotcount/sql/group_commit.hpp>
#include <mutex>

namespace hotcount::sql {

/// The tickets of one transaction.
struct TicketGroup {
    // Under the queue's mutex while the group is queued; then they change no more.
    std::vector<std::shared_ptr<Ticket>> tickets{};
    // Under the mutex.
    bool queued{true};
    bool excuses{false};  // Being written, and a member may still leave with nothing applied.
    bool excused{false};  // One has.

    Event turn{};      // The caller of the first ticket is to lead; also set with `answered`.
    Event answered{};  // Every ticket's error is final, or the ticket is in another group by now.
};

class GroupQueue final : public std::enable_shared_from_this<GroupQueue> {
  public:
    GroupQueue(std::shared_ptr<Database> database, std::shared_ptr<BatchWriter> writer,
               GroupCommitOptions options);

    Result<void> submit(const std::shared_ptr<Ticket>& ticket, Deadline deadline);
    std::vector<Result<void>> submit_all(std::span<const std::shared_ptr<Ticket>> tickets,
                                         Deadline deadline);
    void submit_async(std::shared_ptr<Ticket> ticket, Deadline deadline, Completion<void> done);
    void submit_all_async(std::vector<std::shared_ptr<Ticket>> tickets, Deadline deadline,
                          std::function<void(std::vector<Result<void>>)> done);
    void close();
    GroupCommit::Stats stats() const;

  private:
    friend class GroupWrite;
    using Group = TicketGroup;
    using Tickets = std::span<const std::shared_ptr<Ticket>>;
    struct Portions;

    Result<void> enqueue(Tickets tickets, Deadline deadline, bool& leads);
    Result<void> enqueue_async(Tickets tickets, Deadline deadline);
    void hand_in(const std::shared_ptr<Portions>& call);

    Result<void> await(const std::shared_ptr<Ticket>& ticket, Deadline deadline);
    Error give_up(Ticket& ticket);
    Error late_in_queue() const;
    template <class Leaves>
    void take_out(const std::shared_ptr<Group>& group, Leaves&& leaves);
    void put_back(const std::vector<std::shared_ptr<Ticket>>& tickets);

    Result<void> lead(const std::shared_ptr<Ticket>& own, Deadline deadline);
    void lead_in_pool();
    std::optional<Error> lead_once(Ticket* own, Deadline deadline);
    std::optional<Error> leave_commit_to_pool(Ticket& own, std::shared_ptr<GroupWrite> write,
                                              std::shared_ptr<Group> group, SteadyTime started);
    void end_turn(std::shared_ptr<GroupWrite> write, const std::shared_ptr<Group>& group,
                  SteadyTime started);
    std::shared_ptr<Group> fail_first(Ticket* own, Deadline deadline, const Error& error);
    void wait_for_company(Deadline deadline);
    std::shared_ptr<Group> take_group();
    void pass_leadership();
    void ask_pool_to_lead();

    void expire_at(SteadyTime time);
    void expire(SteadyTime scheduled);
    std::vector<TicketAnswer> take_expired(SteadyTime now);
    void answer(std::vector<TicketAnswer> answers);
    void answer_in_pool(std::vector<TicketAnswer> answers);

    const std::shared_ptr<Database> database_;
    const std::shared_ptr<BatchWriter> writer_;
    const GroupCommitOptions options_;

    std::mutex mutex_;
    std::condition_variable gathered_;
    std::condition_variable none_in_flight_;
    std::deque<std::shared_ptr<Group>> groups_;  // To be written in this order; none is empty.
    std::shared_ptr<Group> current_;             // Being written.
    std::size_t queued_{0};                      // Tickets in groups_.
    std::size_t in_flight_{0};                   // Calls whose completions were not called yet.
    bool leading_{false};
    bool closed_{false};
    std::size_t wanted_{0};    // The gathering leader is woken when so many are queued.
    std::size_t expected_{1};  // Callers known at the end of the previous transaction.
    Duration patience_{0};     // Half of the time it took.
    SteadyTime expiry_{SteadyTime::max()};  // When calls in flight are looked at next.

    std::atomic<std::uint64_t> batches_{0};
    std::atomic<std::uint64_t> writes_{0};

    WorkerPool pool_;
};

// Under the mutex: takes tickets out of a group that is still queued. Where the first one goes,
// those left are regrouped, so that they wake and the next of them waits for its turn.
template <class Leaves>
void GroupQueue::take_out(const std::shared_ptr<Group>& group, Leaves&& leaves) {
    auto& tickets = group->tickets;
    const std::shared_ptr<Ticket> first = tickets.front();
    queued_ -= std::erase_if(tickets, leaves);
    if (!tickets.empty() && tickets.front() == first) return;
    const auto where = std::find(groups_.begin(), groups_.end(), group);
    if (tickets.empty()) {
        groups_.erase(where);
    } else {
        *where = std::make_shared<Group>();
        (*where)->tickets.swap(tickets);
        for (const auto& left : (*where)->tickets) left->group_ = *where;
    }
    group->answered.set();
    group->turn.set();
}

}  // namespace hotcount::sql
