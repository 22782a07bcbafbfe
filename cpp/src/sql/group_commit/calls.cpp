// Calls that do not wait: how they are handed in, when they end, and who calls their completions.
#include <algorithm>

#include "queue.hpp"

namespace hotcount::sql {
namespace {

// Calls in flight are looked at for deadlines no more often than that.
constexpr Duration kBetweenExpiries = std::chrono::milliseconds{2};

}  // namespace

// A call of submit_all_async: handed in portion by portion.
struct GroupQueue::Portions {
    Portions(std::vector<std::shared_ptr<Ticket>> to_write, Deadline until,
             std::function<void(std::vector<Result<void>>)> when_done)
        : tickets(std::move(to_write)),
          deadline(until),
          done(std::move(when_done)),
          results(tickets.size()) {}
    const std::vector<std::shared_ptr<Ticket>> tickets;
    const Deadline deadline;
    std::function<void(std::vector<Result<void>>)> done;
    std::vector<Result<void>> results;
    std::size_t begun{0};              // Tickets that were handed in.
    std::atomic<std::size_t> open{0};  // Those not answered yet, and one while they are handed in.
};

void GroupQueue::submit_async(std::shared_ptr<Ticket> ticket, Deadline deadline,
                              Completion<void> done) {
    ticket->done_ = std::move(done);
    if (auto queued = enqueue_async(std::span{&ticket, 1}, deadline); !queued) {
        std::exchange(ticket->done_, nullptr)(std::move(queued).error());
    }
}

void GroupQueue::submit_all_async(std::vector<std::shared_ptr<Ticket>> tickets, Deadline deadline,
                                  std::function<void(std::vector<Result<void>>)> done) {
    const auto call = std::make_shared<Portions>(std::move(tickets), deadline, std::move(done));
    hand_in(call);
}

// The next portion, and those after it where it is answered at once.
void GroupQueue::hand_in(const std::shared_ptr<Portions>& call) {
    const std::size_t most = std::max<std::size_t>(1, options_.max_queue / 2);
    while (call->begun < call->tickets.size()) {
        const std::size_t first = call->begun;
        const std::size_t size = std::min(most, call->tickets.size() - first);
        call->begun += size;
        call->open.store(size + 1, std::memory_order_relaxed);
        const auto tickets = Tickets{call->tickets}.subspan(first, size);
        for (std::size_t i = 0; i < size; ++i) {
            // Called by this queue, so it is there then.
            tickets[i]->done_ = [this, call, index = first + i](Result<void> result) {
                call->results[index] = std::move(result);
                if (call->open.fetch_sub(1, std::memory_order_acq_rel) == 1) hand_in(call);
            };
        }
        if (auto queued = enqueue_async(tickets, call->deadline); !queued) {
            for (std::size_t i = 0; i < size; ++i) {
                tickets[i]->done_ = nullptr;
                call->results[first + i] = queued;
            }
            continue;
        }
        if (call->open.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    }
    std::exchange(call->done, nullptr)(std::move(call->results));
}

Result<void> GroupQueue::enqueue_async(Tickets tickets, Deadline deadline) {
    HOTCOUNT_TRY(pool_.start());
    const std::lock_guard lock(mutex_);
    if (closed_) {
        return make_error(ErrorCode::closed, database_->name() +
                                                 ": writes end here; nothing was "
                                                 "applied");
    }
    for (const auto& ticket : tickets) ticket->waited_for_ = false;
    std::shared_ptr<Ticket> leads;
    HOTCOUNT_TRY(enqueue(tickets, deadline, leads));
    in_flight_ += tickets.size();
    expire_at(deadline.time());
    if (leads != nullptr) ask_pool_to_lead();
    return {};
}

// Under the mutex.
void GroupQueue::expire_at(SteadyTime time) {
    if (time >= expiry_) return;
    expiry_ = time;
    pool_.run_at(time, [weak = weak_from_this(), time] {
        if (const auto self = weak.lock()) self->expire(time);
    });
}

void GroupQueue::expire(SteadyTime scheduled) {
    std::vector<TicketAnswer> expired;
    {
        const std::lock_guard lock(mutex_);
        if (scheduled != expiry_) return;  // Another look was taken, or is to be taken earlier.
        expired = take_expired(std::chrono::steady_clock::now());
    }
    answer(std::move(expired));
}

// Under the mutex: ends the calls whose deadlines have passed, and says when to look again.
std::vector<TicketAnswer> GroupQueue::take_expired(SteadyTime now) {
    std::vector<TicketAnswer> expired;
    SteadyTime next = SteadyTime::max();
    const auto is_late = [&](const Ticket& ticket, Duration grace = {}) {
        if (ticket.waited_for_ || ticket.gone_) return false;
        if (ticket.deadline_.time() <= now - grace) return true;
        next = std::min(next, ticket.deadline_.time());
        return false;
    };
    const auto expire_written = [&](const Group& group) {
        const Duration grace = is_in_statement(group) ? kGrace : Duration{0};
        for (const auto& ticket : group.tickets) {
            if (is_late(*ticket, grace)) expired.push_back({ticket, give_up(*ticket)});
        }
    };
    if (current_ != nullptr) expire_written(*current_);
    for (const auto& group : looked_at_) expire_written(*group);
    take_out_held([&](const auto& ticket) {
        if (!is_late(*ticket)) return false;
        ticket->gone_ = true;
        expired.push_back({ticket, late_while_held()});
        return true;
    });
    // A copy: groups go with their last tickets.
    for (const auto& group : std::deque(groups_)) {
        take_out(group, [&](const auto& ticket) {
            if (!is_late(*ticket)) return false;
            ticket->gone_ = true;
            expired.push_back({ticket, late_in_queue()});
            return true;
        });
    }
    expiry_ = SteadyTime::max();
    if (next != SteadyTime::max()) expire_at(std::max(next, now + kBetweenExpiries));
    return expired;
}

void GroupQueue::answer(std::vector<TicketAnswer> answers) {
    if (answers.empty()) return;
    const CompletionBatch batch;
    writer_->before_answers(answers);
    for (TicketAnswer& each : answers) {
        const Completion<void> done = std::exchange(each.ticket->done_, nullptr);
        done(each.error ? Result<void>{std::move(*each.error)} : Result<void>{});
    }
    const std::lock_guard lock(mutex_);
    in_flight_ -= answers.size();
    if (in_flight_ == 0) none_in_flight_.notify_all();
}

void GroupQueue::answer_in_pool(std::vector<TicketAnswer> answers) {
    if (answers.empty()) return;
    pool_.run([self = shared_from_this(), kept = std::move(answers)]() mutable {
        self->answer(std::move(kept));
    });
}

Error GroupQueue::closed_early() const {
    return make_error(ErrorCode::closed,
                      database_->name() + ": closed before it was written; nothing was applied");
}

void GroupQueue::close() {
    std::vector<TicketAnswer> ended;
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        const Error error = closed_early();
        const auto ends = [&](const auto& ticket) {
            if (ticket->waited_for_) return false;
            ticket->gone_ = true;
            ended.push_back({ticket, error});
            return true;
        };
        for (const auto& group : std::deque(groups_)) take_out(group, ends);
        take_out_held(ends);
    }
    answer(std::move(ended));
    if (pool_.is_own_thread()) return;
    std::unique_lock lock(mutex_);
    none_in_flight_.wait(lock, [this] { return in_flight_ == 0; });
}

}  // namespace hotcount::sql
