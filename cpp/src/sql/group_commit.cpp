#include <algorithm>
#include <hotcount/sql/group_commit.hpp>

namespace hotcount::sql {
namespace {

// Errors that one write can bring upon its whole batch.
bool may_be_one_writes_fault(ErrorCode code) {
    return code == ErrorCode::overflow || code == ErrorCode::integrity;
}

}  // namespace

Result<void> check_options(const GroupCommitOptions& options) {
    if (options.max_batch == 0) return make_error(ErrorCode::config, "max_batch is 0; at least 1");
    if (options.max_queue == 0) return make_error(ErrorCode::config, "max_queue is 0; at least 1");
    if (options.max_delay < Duration{0}) {
        return make_error(ErrorCode::config, "max_delay is negative");
    }
    return {};
}

GroupCommit::GroupCommit(std::shared_ptr<Database> database, std::shared_ptr<BatchWriter> writer,
                         GroupCommitOptions options)
    : database_(std::move(database)), writer_(std::move(writer)), options_(options) {}

GroupCommit::Stats GroupCommit::stats() const {
    return Stats{batches_.load(std::memory_order_relaxed), writes_.load(std::memory_order_relaxed)};
}

Result<void> GroupCommit::submit(const std::shared_ptr<Ticket>& ticket, Deadline deadline) {
    bool leads = false;
    HOTCOUNT_TRY(enqueue(std::span{&ticket, 1}, leads));
    if (leads) lead(*ticket, deadline);
    return await(ticket, deadline);
}

std::vector<Result<void>> GroupCommit::submit_all(std::span<const std::shared_ptr<Ticket>> tickets,
                                                  Deadline deadline) {
    std::vector<Result<void>> results;
    results.reserve(tickets.size());
    // In portions that fit the queue, so that a large call is not refused for its size alone.
    const std::size_t portion = std::max<std::size_t>(1, options_.max_queue / 2);
    while (!tickets.empty()) {
        const auto now = tickets.first(std::min(portion, tickets.size()));
        tickets = tickets.subspan(now.size());
        bool leads = false;
        if (auto queued = enqueue(now, leads); !queued) {
            results.insert(results.end(), now.size(), queued);
            continue;
        }
        if (leads) lead(*now.front(), deadline);
        // In order: a ticket that is woken to lead is always the first of ours not yet written.
        for (const auto& ticket : now) results.push_back(await(ticket, deadline));
    }
    return results;
}

Result<void> GroupCommit::enqueue(std::span<const std::shared_ptr<Ticket>> tickets, bool& leads) {
    std::lock_guard lock(mutex_);
    if (queue_.size() + tickets.size() > options_.max_queue) {
        return make_error(ErrorCode::capacity,
                          database_->name() + ": " + std::to_string(queue_.size()) +
                              " writes are waiting (max_queue=" +
                              std::to_string(options_.max_queue) + "); nothing was applied");
    }
    for (const auto& ticket : tickets) {
        ticket->queued_ = true;
        queue_.push_back(ticket);
    }
    leads = !leading_;
    leading_ = true;
    if (wanted_ > 0 && queue_.size() >= wanted_) {
        wanted_ = 0;
        gathered_.notify_one();
    }
    return {};
}

Result<void> GroupCommit::await(const std::shared_ptr<Ticket>& ticket, Deadline deadline) {
    while (true) {
        const bool woken = ticket->woken_.wait(deadline);
        bool lead_now = false;
        {
            std::lock_guard lock(mutex_);
            lead_now = ticket->lead_;
            ticket->lead_ = false;
            if (lead_now) {
                ticket->woken_.clear();
            } else if (!woken && !ticket->woken_.is_set()) {
                if (!ticket->queued_) {
                    return make_error(ErrorCode::outcome_unknown,
                                      database_->name() +
                                          ": the deadline passed while the commit was under way; "
                                          "it may or may not be applied");
                }
                leave_queue(*ticket);
                return make_error(ErrorCode::deadline,
                                  database_->name() +
                                      ": the deadline passed while waiting to be written; "
                                      "nothing was applied");
            }
        }
        if (!lead_now) {
            if (ticket->error) return *ticket->error;
            return {};
        }
        lead(*ticket, deadline);
    }
}

void GroupCommit::lead(Ticket& own, Deadline deadline) {
    const Tickets done = gather_and_write(own, deadline);
    // The role first, the answers second: the next transaction starts while we wake this one's
    // callers.
    pass_leadership();
    for (const auto& ticket : done) ticket->woken_.set();
}

GroupCommit::Tickets GroupCommit::gather_and_write(Ticket& own, Deadline deadline) {
    // The write lock comes first and the queue second: while the lock is held elsewhere, callers
    // whose deadlines pass leave a queue in which nothing of theirs has been sent.
    const auto fail_own = [&](Error error) {
        std::lock_guard lock(mutex_);
        Tickets mine;
        for (const auto& ticket : queue_) {
            if (ticket.get() == &own) mine.push_back(ticket);
        }
        leave_queue(own);
        own.error = std::move(error);
        return mine;
    };
    wait_for_company(deadline);
    const SteadyTime started = std::chrono::steady_clock::now();
    auto lease = database_->writer(deadline);
    if (!lease) return fail_own(std::move(lease).error());
    Connection& connection = **lease;
    if (auto begun = connection.begin(deadline); !begun) return fail_own(std::move(begun).error());
    Tickets batch = take_batch();
    write_begun(connection, batch, deadline);
    const Duration took = std::chrono::steady_clock::now() - started;
    std::lock_guard lock(mutex_);
    expected_ = batch.size() + queue_.size();
    patience_ = took / 2;
    return batch;
}

// Callers in a closed loop come back a moment after they were answered. A leader that does not wait
// for them writes half of them now, and the other half waits for its fsync: 64 callers on 2 cores
// settled at 32 votes a transaction. Those who were answered last time and those who were waiting
// then are all the callers there are; where some do not return, fewer are expected next time.
void GroupCommit::wait_for_company(Deadline deadline) {
    std::unique_lock lock(mutex_);
    const bool by_option = options_.max_delay > Duration{0};
    const std::size_t wanted =
        std::min(by_option ? options_.max_batch : expected_, options_.max_batch);
    if (queue_.size() >= wanted) return;
    const Duration patience = by_option ? options_.max_delay : patience_;
    wanted_ = wanted;
    gathered_.wait_until(lock, std::min(deadline.time(), Deadline::after(patience).time()),
                         [this] { return wanted_ == 0; });
    wanted_ = 0;
}

GroupCommit::Tickets GroupCommit::take_batch() {
    std::lock_guard lock(mutex_);
    const std::size_t size = std::min(queue_.size(), options_.max_batch);
    Tickets batch;
    batch.reserve(size);
    for (std::size_t i = 0; i < size; ++i) {
        queue_.front()->queued_ = false;
        batch.push_back(std::move(queue_.front()));
        queue_.pop_front();
    }
    return batch;
}

void GroupCommit::leave_queue(Ticket& ticket) {
    const auto place = std::find_if(queue_.begin(), queue_.end(),
                                    [&](const auto& queued) { return queued.get() == &ticket; });
    if (place != queue_.end()) queue_.erase(place);
    ticket.queued_ = false;
}

void GroupCommit::pass_leadership() {
    std::lock_guard lock(mutex_);
    if (queue_.empty()) {
        leading_ = false;
        return;
    }
    Ticket& next = *queue_.front();
    next.lead_ = true;
    next.woken_.set();
}

void GroupCommit::write_in_transaction(Connection& connection,
                                       std::span<const std::shared_ptr<Ticket>> batch,
                                       Deadline deadline) {
    if (auto begun = connection.begin(deadline); !begun) {
        for (const auto& ticket : batch) ticket->error = begun.error();
        return;
    }
    write_begun(connection, batch, deadline);
}

void GroupCommit::write_begun(Connection& connection,
                              std::span<const std::shared_ptr<Ticket>> batch, Deadline deadline) {
    auto written = writer_->write(connection, batch);
    if (written) {
        written = connection.commit();
        batches_.fetch_add(1, std::memory_order_relaxed);
        writes_.fetch_add(batch.size(), std::memory_order_relaxed);
    } else {
        connection.rollback();
    }
    if (written) return;
    if (batch.size() > 1 && may_be_one_writes_fault(written.error().code)) {
        for (const auto& ticket : batch) ticket->error.reset();
        const std::size_t half = batch.size() / 2;
        write_in_transaction(connection, batch.first(half), deadline);
        write_in_transaction(connection, batch.subspan(half), deadline);
        return;
    }
    for (const auto& ticket : batch) {
        // A write refused for itself stays so: that nothing of it was applied is certain.
        if (!ticket->error) ticket->error = written.error();
    }
}

}  // namespace hotcount::sql
