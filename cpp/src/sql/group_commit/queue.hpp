// The callers of one GroupCommit, in groups, and who leads. See group_commit.hpp.
#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <hotcount/detail/base/event.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/detail/sql/group_commit.hpp>
#include <map>
#include <mutex>
#include <unordered_map>

namespace hotcount::sql {

/// The tickets of one transaction.
struct TicketGroup {
    // Under the queue's mutex while the group is queued; then they change no more.
    std::vector<std::shared_ptr<Ticket>> tickets{};
    // Under the mutex.
    bool queued{true};
    bool excuses{false};  // Being written, and a member may still leave with nothing applied.
    bool excused{false};  // One has.
    bool held{false};     // Waits for the lane; tickets come and go.

    Event turn{};      // The caller of the first ticket is to lead, and does not yet; also set with
                       // `answered`.
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
    // Something that another transaction holds, and who waits for it.
    struct Held {
        std::shared_ptr<Group> group;  // In order. Empty only while the lane writes those before.
        SteadyTime since;
        std::uint64_t turn;  // The lane waits for the lowest.
        // Found so by the lane while these were being written, which may come before those who wait.
        std::shared_ptr<Group> follows;
        bool looked_at{false};  // The lane is writing some that are not in the group any more.
    };
    using HeldByKey = std::unordered_map<std::uint64_t, Held>;

    Result<void> enqueue(Tickets tickets, Deadline deadline, std::shared_ptr<Ticket>& leads);
    Result<void> enqueue_async(Tickets tickets, Deadline deadline);
    void hand_in(const std::shared_ptr<Portions>& call);

    // How long after its deadline a write waits whose statement is under way: who meets a row that is
    // held gives way, and then it is known that nothing was applied. As long as a leader's own does.
    static constexpr Duration kGrace = std::chrono::milliseconds{200};
    // A statement that may have to wait is not begun again for who has less time.
    static constexpr Duration kNoTime = std::chrono::milliseconds{110};
    bool is_in_statement(const Group& group) const {
        return !group.queued && !group.held && !group.excuses && writer_->commits_by_itself();
    }

    Result<void> await(const std::shared_ptr<Ticket>& ticket, Deadline deadline);
    Error give_up(Ticket& ticket);
    Error late_in_queue() const;
    Error late_while_held() const;
    Error closed_early() const;
    template <class Leaves>
    void take_out(const std::shared_ptr<Group>& group, Leaves&& leaves);
    void put_back(const std::vector<std::shared_ptr<Ticket>>& tickets);

    // group_held.cpp
    static std::shared_ptr<Group> make_held_group();
    HeldByKey::iterator find_held(const Ticket& ticket);
    void hold(HeldByKey::iterator where, const std::shared_ptr<Ticket>& ticket);
    void leave_held(Ticket& ticket);
    template <class Leaves>
    void take_out_held(Leaves&& leaves);
    void return_left(const std::vector<std::shared_ptr<Ticket>>& left, const HeldByKey& known,
                     std::vector<TicketAnswer>& answers);
    void forget_empty();
    void hold_queued();
    void hold_rows_apart();
    void schedule_look();
    void look_again();
    void look_at_held();
    struct Look;
    Look take_held(SteadyTime now);
    void take_held(HeldByKey::iterator where, Look& look);
    void end_look(const Look& look);

    void lead_in_pool();
    std::optional<Result<void>> lead_once(Ticket* own, Deadline deadline);
    std::optional<Result<void>> leave_commit_to_pool(Ticket& own, bool own_is_settled,
                                                     std::shared_ptr<GroupWrite> write,
                                                     std::shared_ptr<Group> group,
                                                     SteadyTime started);
    void end_turn(std::shared_ptr<GroupWrite> write, const std::shared_ptr<Group>& group,
                  SteadyTime started);
    static void wake(Group& group);
    static std::vector<std::shared_ptr<Ticket>> settle(const std::shared_ptr<Group>& group,
                                                       std::vector<TicketAnswer>& answers);
    std::shared_ptr<Group> fail_first(Ticket* own, Deadline deadline, const Error& error,
                                      bool& own_is_settled);
    void wait_for_company(Deadline deadline);
    std::shared_ptr<Group> take_group(const Ticket* own, bool& has_own);
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

    mutable std::mutex mutex_;
    std::condition_variable gathered_;
    std::condition_variable none_in_flight_;
    std::deque<std::shared_ptr<Group>> groups_;      // To be written in this order; none is empty.
    std::shared_ptr<Group> current_;                 // Being written.
    std::size_t queued_{0};                          // Tickets in groups_.
    HeldByKey held_;                                 // None of these rows is in groups_.
    std::vector<std::shared_ptr<Group>> looked_at_;  // Of the held: being written by the lane.
    std::size_t waits_held_{0};                      // Tickets in held_.
    std::uint64_t turns_{0};                         // Drawn by what is held.
    bool looks_{false};                              // A look is under way or scheduled.
    bool has_waited_{false};                         // The lane's last turn.
    Duration look_pause_{0};
    std::size_t in_flight_{0};  // Calls whose completions were not called yet.
    bool leading_{false};
    bool closed_{false};
    std::size_t wanted_{0};    // The gathering leader is woken when so many are queued.
    std::size_t expected_{1};  // Callers known at the end of the previous transaction.
    Duration patience_{0};     // Half of the time it took.
    SteadyTime expiry_{SteadyTime::max()};  // When calls in flight are looked at next.

    std::atomic<std::uint64_t> batches_{0};
    std::atomic<std::uint64_t> writes_{0};

    WorkerPool pool_;
    WorkerPool lane_{1};
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

// Under the mutex: takes tickets out of what waits for the lane.
template <class Leaves>
void GroupQueue::take_out_held(Leaves&& leaves) {
    for (auto& [key, held] : held_) waits_held_ -= std::erase_if(held.group->tickets, leaves);
    forget_empty();
}

}  // namespace hotcount::sql
