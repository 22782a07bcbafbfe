#include <algorithm>
#include <hotcount/sql/group_commit.hpp>

namespace hotcount::sql {
namespace {

// Errors that one write can bring upon its whole batch.
bool may_be_one_writes_fault(ErrorCode code) {
    return code == ErrorCode::overflow || code == ErrorCode::integrity;
}

}  // namespace

// The tickets of one transaction. Its first ticket's caller leads it; the others sleep until it is
// answered.
struct TicketGroup {
    // Under the group commit's mutex until the group is taken; then the leader's alone.
    std::vector<std::shared_ptr<Ticket>> tickets{};
    bool queued{true};
    Event turn{};           // The first ticket's caller is to lead.
    bool regrouped{false};  // Set before `answered`: not done, the tickets are in another group.
    Event answered{};       // Every ticket's error is final.
};

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
    return leads ? lead(ticket, deadline) : await(ticket, deadline);
}

std::vector<Result<void>> GroupCommit::submit_all(std::span<const std::shared_ptr<Ticket>> tickets,
                                                  Deadline deadline) {
    std::vector<Result<void>> results;
    results.reserve(tickets.size());
    // In portions that fit the queue, so that a large call is not refused for its size alone.
    const std::size_t portion = std::max<std::size_t>(1, options_.max_queue / 2);
    while (!tickets.empty()) {
        auto now = tickets.first(std::min(portion, tickets.size()));
        tickets = tickets.subspan(now.size());
        bool leads = false;
        if (auto queued = enqueue(now, leads); !queued) {
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

Result<void> GroupCommit::enqueue(std::span<const std::shared_ptr<Ticket>> tickets, bool& leads) {
    std::lock_guard lock(mutex_);
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

Result<void> GroupCommit::await(const std::shared_ptr<Ticket>& ticket, Deadline deadline) {
    while (true) {
        std::shared_ptr<Group> group;
        bool first = false;
        {
            std::lock_guard lock(mutex_);
            group = ticket->group_;
            first = group->queued && group->tickets.front() == ticket;
        }
        const bool woken = (first ? group->turn : group->answered).wait(deadline);
        if (woken && first) return lead(ticket, deadline);
        if (!woken) {
            std::lock_guard lock(mutex_);
            // What came while we took the lock counts.
            if (ticket->group_ != group || group->answered.is_set()) continue;
            if (!group->queued) {
                return make_error(ErrorCode::outcome_unknown,
                                  database_->name() +
                                      ": the deadline passed while the commit was under way; it "
                                      "may or may not be applied");
            }
            if (group->tickets.front() == ticket && group->turn.is_set()) continue;
            leave(ticket);
            return make_error(ErrorCode::deadline,
                              database_->name() +
                                  ": the deadline passed while waiting to be written; nothing was "
                                  "applied");
        }
        if (group->regrouped) continue;
        if (ticket->error) return *ticket->error;
        return {};
    }
}

Result<void> GroupCommit::lead(const std::shared_ptr<Ticket>& own, Deadline deadline) {
    const std::shared_ptr<Group> written = gather_and_write(own, deadline);
    // The role first, the answers second: the next transaction starts while this one's callers wake.
    pass_leadership();
    if (written != nullptr) {
        written->answered.set();
        written->tickets
            .clear();  // They hold the group, and the group must not hold them for ever.
    }
    if (own->error) return *own->error;
    return {};
}

// None where only `own` has failed, and is out of its group.
std::shared_ptr<TicketGroup> GroupCommit::gather_and_write(const std::shared_ptr<Ticket>& own,
                                                           Deadline deadline) {
    // The write lock comes first and the group second: while the lock is held elsewhere, callers
    // whose deadlines pass leave a group of which nothing has been sent.
    const auto fail_own = [&](Error error) {
        std::lock_guard lock(mutex_);
        leave(own);
        own->error = std::move(error);
        return nullptr;
    };
    wait_for_company(deadline);
    const SteadyTime started = std::chrono::steady_clock::now();
    auto lease = database_->writer(deadline);
    if (!lease) return fail_own(std::move(lease).error());
    Connection& connection = **lease;
    if (auto begun = connection.begin(deadline); !begun) return fail_own(std::move(begun).error());
    std::shared_ptr<Group> group = take_group();
    write_begun(connection, group->tickets, deadline);
    const Duration took = std::chrono::steady_clock::now() - started;
    std::lock_guard lock(mutex_);
    expected_ = group->tickets.size() + queued_;
    patience_ = took / 2;
    return group;
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
    if (queued_ >= wanted) return;
    const Duration patience = by_option ? options_.max_delay : patience_;
    wanted_ = wanted;
    gathered_.wait_until(lock, std::min(deadline.time(), Deadline::after(patience).time()),
                         [this] { return wanted_ == 0; });
    wanted_ = 0;
}

// The leader's: nobody else takes groups.
std::shared_ptr<TicketGroup> GroupCommit::take_group() {
    std::lock_guard lock(mutex_);
    std::shared_ptr<Group> group = std::move(groups_.front());
    groups_.pop_front();
    queued_ -= group->tickets.size();
    group->queued = false;
    return group;
}

// Takes a ticket out of its group, which is still queued. Where it was the first one, those left
// are regrouped, so that they wake and the next of them waits for its turn.
void GroupCommit::leave(const std::shared_ptr<Ticket>& ticket) {
    const std::shared_ptr<Group> group = ticket->group_;
    auto& tickets = group->tickets;
    const auto place = std::find(tickets.begin(), tickets.end(), ticket);
    const bool first = place == tickets.begin();
    tickets.erase(place);
    --queued_;
    const auto where = std::find(groups_.begin(), groups_.end(), group);
    if (tickets.empty()) {
        groups_.erase(where);
    } else if (first) {
        *where = std::make_shared<Group>();
        (*where)->tickets.swap(tickets);
        for (const auto& left : (*where)->tickets) left->group_ = *where;
        group->regrouped = true;
        group->answered.set();
    }
}

void GroupCommit::pass_leadership() {
    std::lock_guard lock(mutex_);
    if (groups_.empty()) {
        leading_ = false;
    } else {
        groups_.front()->turn.set();
    }
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
