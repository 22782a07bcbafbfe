#include "group_write.hpp"

#include <algorithm>
#include <hotcount/base/interrupt.hpp>
#include <utility>

namespace hotcount::sql {

Result<void> GroupWrite::begin_once() {
    if (begun_) return {};
    if (!lease_) {
        HOTCOUNT_TRY_ASSIGN(Lease lease, queue_.database_->writer(deadline_));
        lease_.emplace(std::move(lease));
    }
    HOTCOUNT_TRY((*lease_)->begin(deadline_));
    begun_ = true;
    return {};
}

Result<void> GroupWrite::begin() {
    auto begun = begin_once();
    // A connection that the server has dropped since it was last used: another one, once.
    if (begun || !lease_ || begun.error().code != ErrorCode::unavailable || deadline_.passed()) {
        return begun;
    }
    reconnected_ = true;
    lease_.reset();
    return begin_once();
}

void GroupWrite::run(TicketGroup& group) {
    write(group, group.tickets);
    if (!awaits_commit()) lease_.reset();
}

void GroupWrite::resume(TicketGroup& group) {
    const auto awaited = std::exchange(awaited_, {});
    const auto after = std::exchange(put_off_, {});
    deadline_ = time_of_others(awaited).value_or(deadline_);
    own_ = nullptr;
    retry_.emplace(*queue_.database_, deadline_);
    doubt_.reset();
    resumes_ = true;
    write(group, awaited);
    put_off_.insert(put_off_.end(), after.begin(), after.end());
    if (awaits_commit()) forgo();
    lease_.reset();
}

bool GroupWrite::awaits_commit_of(const Ticket& ticket) const {
    return std::any_of(awaited_.begin(), awaited_.end(),
                       [&](const auto& each) { return each.get() == &ticket; });
}

void GroupWrite::forgo() {
    settle(awaited_, *doubt_);
    awaited_.clear();
    doubt_.reset();
    lease_.reset();
}

// The last of their deadlines; none where the leader's was the last.
std::optional<Deadline> GroupWrite::time_of_others(Tickets batch) const {
    std::optional<Deadline> latest;
    SteadyTime last = std::chrono::steady_clock::now();
    for (const auto& ticket : batch) {
        if (ticket.get() == own_ || ticket->deadline_.time() <= last) continue;
        last = ticket->deadline_.time();
        latest = ticket->deadline_;
    }
    return latest;
}

void GroupWrite::write(TicketGroup& group, Tickets batch) {
    std::vector<std::shared_ptr<Ticket>> kept;  // What `batch` shows, once some have left.
    while (!batch.empty()) {
        // In order: nothing is written before what was put off.
        if (!put_off_.empty() || awaits_commit()) {
            put_off_.insert(put_off_.end(), batch.begin(), batch.end());
            return;
        }
        bool left = false;
        auto written = attempt(group, batch, left);
        if (written) return;
        if (left) {
            kept = without_excused(batch);
            batch = kept;
            continue;
        }
        Error error = std::move(written).error();
        if (error.code == ErrorCode::outcome_unknown) {
            if (lease_ && (*lease_)->commit_is_open() && time_of_others(batch)) {
                awaited_.assign(batch.begin(), batch.end());
                doubt_ = std::move(error);
                return;
            }
            return settle(batch, error);
        }
        if (is_transient(error)) {
            lease_.reset();  // Nobody waits for a connection that sleeps.
            if (retry_->again(error)) continue;
            return leave_to_others(batch, retry_->give_up(std::move(error)));
        }
        if (error.code == ErrorCode::unavailable && !reconnected_ && !deadline_.passed()) {
            reconnected_ = true;
            lease_.reset();
            continue;
        }
        if (error.code == ErrorCode::deadline && deadline_.passed()) {
            return leave_to_others(batch, retry_->give_up(std::move(error)));
        }
        if (batch.size() > 1 && may_be_one_writes_fault(error)) {
            const std::size_t half = batch.size() / 2;
            write(group, batch.first(half));
            batch = batch.subspan(half);
            continue;
        }
        return settle(batch, error);
    }
}

// Fails with `left`, and whatever error, where nothing is wrong but that members have left.
Result<void> GroupWrite::attempt(TicketGroup& group, Tickets batch, bool& left) {
    HOTCOUNT_TRY(std::exchange(resumes_, false) ? (*lease_)->await_commit(deadline_)
                                                : write_and_commit(group, batch, left));
    queue_.writer_->committed();
    queue_.batches_.fetch_add(1, std::memory_order_relaxed);
    queue_.writes_.fetch_add(batch.size(), std::memory_order_relaxed);
    return {};
}

Result<void> GroupWrite::write_and_commit(TicketGroup& group, Tickets batch, bool& left) {
    for (const auto& ticket : batch) ticket->error.reset();
    HOTCOUNT_TRY(begin_once());
    Connection& connection = **lease_;
    begun_ = false;
    if (auto written = queue_.writer_->write(connection, batch); !written) {
        connection.rollback();
        return written;
    }
    if (!close_doors(group)) {
        connection.rollback();
        left = true;
        return make_error(ErrorCode::deadline, "members have left");
    }
    return connection.commit();
}

// From here on members cannot leave with nothing applied. False where some have.
bool GroupWrite::close_doors(TicketGroup& group) {
    const std::lock_guard lock(queue_.mutex_);
    const bool left = group.excuses && group.excused;
    // Not again: a group whose members' deadlines pass one after the other would never be written.
    group.excuses = false;
    return !left;
}

std::vector<std::shared_ptr<Ticket>> GroupWrite::without_excused(Tickets batch) {
    const std::lock_guard lock(queue_.mutex_);
    std::vector<std::shared_ptr<Ticket>> kept;
    kept.reserve(batch.size());
    std::copy_if(batch.begin(), batch.end(), std::back_inserter(kept),
                 [](const auto& ticket) { return !ticket->excused_; });
    return kept;
}

void GroupWrite::settle(Tickets batch, const Error& error) {
    for (const auto& ticket : batch) {
        // A write refused for itself stays so: that nothing of it was applied is certain.
        if (!ticket->error) ticket->error = error;
    }
}

// `error` is for those who have no more time than the leader had.
void GroupWrite::leave_to_others(Tickets batch, const Error& error) {
    const SteadyTime over = interrupted() ? std::chrono::steady_clock::now() : deadline_.time();
    for (const auto& ticket : batch) {
        if (ticket.get() != own_ && ticket->deadline_.time() > over) {
            put_off_.push_back(ticket);
        } else {
            ticket->error = error;
        }
    }
}

}  // namespace hotcount::sql
