#include "group_queue.hpp"

#include <algorithm>
#include <iterator>

#include "group_write.hpp"

namespace hotcount::sql {
GroupQueue::GroupQueue(std::shared_ptr<Database> database, std::shared_ptr<BatchWriter> writer,
                       GroupCommitOptions options)
    : database_(std::move(database)),
      writer_(std::move(writer)),
      options_(options),
      pool_(options.workers) {}

GroupCommit::Stats GroupQueue::stats() const {
    return {batches_.load(std::memory_order_relaxed), writes_.load(std::memory_order_relaxed)};
}

// -- callers ----------------------------------------------------------------

Result<void> GroupQueue::submit(const std::shared_ptr<Ticket>& ticket, Deadline deadline) {
    bool leads = false;
    {
        const std::lock_guard lock(mutex_);
        HOTCOUNT_TRY(enqueue(std::span{&ticket, 1}, deadline, leads));
    }
    return leads ? lead(ticket, deadline) : await(ticket, deadline);
}

std::vector<Result<void>> GroupQueue::submit_all(Tickets tickets, Deadline deadline) {
    std::vector<Result<void>> results;
    results.reserve(tickets.size());
    // In portions that fit the queue, so that a large call is not refused for its size alone.
    const std::size_t portion = std::max<std::size_t>(1, options_.max_queue / 2);
    while (!tickets.empty()) {
        auto now = tickets.first(std::min(portion, tickets.size()));
        tickets = tickets.subspan(now.size());
        bool leads = false;
        const auto queued = [&] {
            const std::lock_guard lock(mutex_);
            return enqueue(now, deadline, leads);
        }();
        if (!queued) {
            results.insert(results.end(), now.size(), queued);
            continue;
        }
        if (leads) {
            results.push_back(lead(now.front(), deadline));
            now = now.subspan(1);
        }
        // In order: a ticket whose turn it is to lead is always the first of ours not yet written.
        for (const auto& ticket : now) results.push_back(await(ticket, deadline));
    }
    return results;
}

// Under the mutex.
Result<void> GroupQueue::enqueue(Tickets tickets, Deadline deadline, bool& leads) {
    if (queued_ + tickets.size() > options_.max_queue) {
        return make_error(ErrorCode::capacity, database_->name() + ": " + std::to_string(queued_) +
                                                   " writes are waiting (max_queue=" +
                                                   std::to_string(options_.max_queue) +
                                                   "); nothing was applied");
    }
    for (const auto& ticket : tickets) {
        if (groups_.empty() || groups_.back()->tickets.size() >= options_.max_batch) {
            groups_.push_back(std::make_shared<Group>());
        }
        ticket->deadline_ = deadline;
        ticket->group_ = groups_.back();
        groups_.back()->tickets.push_back(ticket);
    }
    queued_ += tickets.size();
    leads = !leading_;
    leading_ = true;
    if (wanted_ > 0 && queued_ >= wanted_) {
        wanted_ = 0;
        gathered_.notify_one();
    }
    return {};
}

Result<void> GroupQueue::await(const std::shared_ptr<Ticket>& ticket, Deadline deadline) {
    while (true) {
        std::shared_ptr<Group> group;
        bool first = false;
        {
            const std::lock_guard lock(mutex_);
            group = ticket->group_;
            first = group->queued && group->tickets.front() == ticket;
        }
        const bool woken = (first ? group->turn : group->answered).wait(deadline);
        {
            const std::lock_guard lock(mutex_);
            if (ticket->group_ != group) continue;
            first = group->queued && group->tickets.front() == ticket;
            // What came while we took the lock counts.
            if (!group->answered.is_set()) {
                if (!first || !group->turn.is_set()) {
                    if (woken) continue;
                    return give_up(*ticket);
                }
            } else {
                first = false;
            }
        }
        if (first) return lead(ticket, deadline);
        if (ticket->error) return *ticket->error;
        return {};
    }
}

// Under the mutex: what a caller is told whose deadline has passed.
Error GroupQueue::give_up(Ticket& ticket) {
    const std::shared_ptr<Group> group = ticket.group_;
    ticket.gone_ = true;
    if (group->queued) {
        take_out(group, [&](const auto& each) { return each.get() == &ticket; });
        return late_in_queue();
    }
    if (group->excuses) {
        group->excused = true;
        ticket.excused_ = true;
        return make_error(ErrorCode::deadline, database_->name() +
                                                   ": the deadline passed before the commit; "
                                                   "nothing was applied");
    }
    return make_error(ErrorCode::outcome_unknown,
                      database_->name() +
                          ": the deadline passed while the commit was under way; it may or may not "
                          "be applied");
}

Error GroupQueue::late_in_queue() const {
    // Whoever leads waits for a connection then.
    if (const auto refusal = database_->out_of_room()) {
        return make_error(
            ErrorCode::deadline,
            refusal->message + "; no connection came free until the deadline; nothing was applied",
            refusal->server_code);
    }
    return make_error(ErrorCode::deadline,
                      database_->name() +
                          ": the deadline passed while waiting to be written; nothing was applied");
}

// Under the mutex: to the front of the queue, in order.
void GroupQueue::put_back(const std::vector<std::shared_ptr<Ticket>>& tickets) {
    auto group = std::make_shared<Group>();
    for (const auto& ticket : tickets) {
        if (ticket->excused_ || ticket->gone_) continue;
        ticket->group_ = group;
        group->tickets.push_back(ticket);
    }
    if (group->tickets.empty()) return;
    queued_ += group->tickets.size();
    groups_.push_front(std::move(group));
}

// -- leaders ----------------------------------------------------------------

Result<void> GroupQueue::lead(const std::shared_ptr<Ticket>& own, Deadline deadline) {
    if (auto unknown = lead_once(own.get(), deadline)) return *std::move(unknown);
    if (own->error) return *own->error;
    return {};
}

// Under the mutex.
void GroupQueue::ask_pool_to_lead() {
    pool_.run([self = shared_from_this()] { self->lead_in_pool(); });
}

void GroupQueue::lead_in_pool() {
    Deadline deadline = Deadline::at(SteadyTime::min());
    {
        const std::lock_guard lock(mutex_);
        if (groups_.empty()) {
            leading_ = false;
            return;
        }
        // Who has less time leaves by itself, or is told by expire().
        for (const auto& ticket : groups_.front()->tickets) {
            if (ticket->deadline_.time() > deadline.time()) deadline = ticket->deadline_;
        }
    }
    (void)lead_once(nullptr, deadline);
}

// Returns what `own` is told where its write is still under way; else that is in own->error.
std::optional<Error> GroupQueue::lead_once(Ticket* own, Deadline deadline) {
    wait_for_company(deadline);
    const SteadyTime started = std::chrono::steady_clock::now();
    std::shared_ptr<Group> group;
    auto write = std::make_shared<GroupWrite>(*this, own, deadline);
    if (auto begun = write->begin(); !begun) {
        group = fail_first(own, deadline, begun.error());
    } else if (group = take_group(); group != nullptr) {
        write->run(*group);
    }
    if (write->awaits_commit()) {
        if (own == nullptr) {
            write->resume(*group);
        } else if (pool_.start()) {
            return leave_commit_to_pool(*own, std::move(write), std::move(group), started);
        } else {
            write->forgo();
        }
    }
    end_turn(std::move(write), group, started);
    return std::nullopt;
}

// The caller that leads has no more time, and others of its group have. The role goes along.
std::optional<Error> GroupQueue::leave_commit_to_pool(Ticket& own,
                                                      std::shared_ptr<GroupWrite> write,
                                                      std::shared_ptr<Group> group,
                                                      SteadyTime started) {
    const std::lock_guard lock(mutex_);
    std::optional<Error> unknown;
    if (write->awaits_commit_of(own)) unknown = give_up(own);  // Else it was in another half.
    ++in_flight_;                                              // close() waits for it.
    pool_.run(
        [self = shared_from_this(), write = std::move(write), group = std::move(group), started] {
            write->resume(*group);
            self->end_turn(write, group, started);
            const std::lock_guard ended(self->mutex_);
            if (--self->in_flight_ == 0) self->none_in_flight_.notify_all();
        });
    return unknown;
}

void GroupQueue::end_turn(std::shared_ptr<GroupWrite> write, const std::shared_ptr<Group>& group,
                          SteadyTime started) {
    std::vector<TicketAnswer> answers;
    {
        const Duration took = std::chrono::steady_clock::now() - started;
        const std::lock_guard lock(mutex_);
        put_back(write->put_off());
        if (group != nullptr) {
            expected_ = group->tickets.size() + queued_;
            patience_ = took / 2;
            for (const auto& ticket : group->tickets) {
                if (ticket->waited_for_ || ticket->gone_ || ticket->group_ != group) continue;
                ticket->gone_ = true;
                answers.push_back({ticket, ticket->error});
            }
        }
        current_.reset();
        // The role first, the answers second: the next transaction starts while this one's callers
        // wake.
        pass_leadership();
    }
    write.reset();  // Its connection, where there was nothing to write.
    if (group != nullptr) {
        group->answered.set();
        group->turn.set();
        group->tickets.clear();  // They hold the group, and it must not hold them for ever.
    }
    if (pool_.is_own_thread()) {
        answer(std::move(answers));
    } else {
        answer_in_pool(std::move(answers));
    }
}

// There is no transaction to be had. Where that is for a deadline, only those fail whose deadline it
// is; else all who would have shared the transaction. Returns their group, taken.
std::shared_ptr<TicketGroup> GroupQueue::fail_first(Ticket* own, Deadline deadline,
                                                    const Error& error) {
    const bool late = error.code == ErrorCode::deadline;
    if (late && own != nullptr) {
        const std::lock_guard lock(mutex_);
        take_out(own->group_, [&](const auto& each) { return each.get() == own; });
        own->error = error;
        return nullptr;
    }
    if (late && deadline.passed()) {
        std::vector<TicketAnswer> expired;
        {
            const std::lock_guard lock(mutex_);
            expired = take_expired(std::chrono::steady_clock::now());
        }
        answer(std::move(expired));
        return nullptr;
    }
    std::shared_ptr<Group> group = take_group();
    if (group != nullptr) {
        for (const auto& ticket : group->tickets) ticket->error = error;
    }
    return group;
}

// Callers in a closed loop come back a moment after they were answered. A leader that does not wait
// for them writes half of them now, and the other half waits for its fsync: 64 callers on 2 cores
// settled at 32 votes a transaction. Those who were answered last time and those who were waiting
// then are all the callers there are; where some do not return, fewer are expected next time.
void GroupQueue::wait_for_company(Deadline deadline) {
    std::unique_lock lock(mutex_);
    const bool by_option = options_.max_delay > Duration{0};
    const std::size_t wanted =
        std::min(by_option ? options_.max_batch : expected_, options_.max_batch);
    if (queued_ >= wanted) return;
    const Duration patience = by_option ? options_.max_delay : patience_;
    wanted_ = wanted;
    gathered_.wait_until(lock, std::min(deadline.time(), Deadline::after(patience).time()),
                         [this] { return wanted_ == 0; });
    wanted_ = 0;
}

// The leader's: nobody else takes groups. None where all have left.
std::shared_ptr<TicketGroup> GroupQueue::take_group() {
    const std::lock_guard lock(mutex_);
    if (groups_.empty()) return nullptr;
    current_ = std::move(groups_.front());
    groups_.pop_front();
    queued_ -= current_->tickets.size();
    current_->queued = false;
    current_->excuses = true;
    return current_;
}

// Under the mutex.
void GroupQueue::pass_leadership() {
    if (groups_.empty()) {
        leading_ = false;
    } else if (groups_.front()->tickets.front()->waited_for_) {
        groups_.front()->turn.set();
    } else {
        ask_pool_to_lead();
    }
}

}  // namespace hotcount::sql
