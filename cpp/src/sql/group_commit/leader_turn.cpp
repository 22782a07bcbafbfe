#include "leader_turn.hpp"

#include <algorithm>
#include <cassert>
#include <hotcount/detail/base/interrupt.hpp>
#include <utility>

namespace hotcount::sql {

Result<void> LeaderTurn::begin_once() {
    if (begun_) return {};
    if (!lease_) {
        HOTCOUNT_TRY_ASSIGN(Lease lease, queue_.database_->writer(deadline_));
        lease_.emplace(std::move(lease));
    }
    HOTCOUNT_TRY((*lease_)->begin(deadline_));
    begun_ = true;
    return {};
}

Result<void> LeaderTurn::begin() {
    auto begun = begin_once();
    // The server may have dropped an idle connection: one more attempt on another.
    if (begun || !lease_ || begun.error().code != ErrorCode::unavailable || deadline_.passed()) {
        return begun;
    }
    reconnected_ = true;
    lease_.reset();
    return begin_once();
}

void LeaderTurn::run(std::vector<std::shared_ptr<WriteGroup>> groups) {
    groups_ = std::move(groups);
    if (groups_.size() == 1) {
        write_batch(groups_.front()->writes);
    } else {
        Batch all;
        for (const auto& group : groups_) {
            all.insert(all.end(), group->writes.begin(), group->writes.end());
        }
        write_batch(all);
    }
    if (!awaits_commit()) lease_.reset();
}

void LeaderTurn::fail(const std::vector<std::shared_ptr<WriteGroup>>& groups, const Error& error) {
    for (const auto& group : groups) leave_to_others(group->writes, error);
}

void LeaderTurn::resume() {
    assert(phase_ == Phase::awaits_commit);
    const Awaited awaited = std::exchange(awaited_, {});
    deadline_ = time_of_others(awaited.writes).value_or(deadline_);
    own_ = nullptr;
    retry_.emplace(*queue_.database_, deadline_);
    phase_ = Phase::resumes;
    write_batch(awaited.writes);
    if (awaits_commit()) abandon_commit();
    defer(awaited.after);
    lease_.reset();
}

bool LeaderTurn::awaits_commit_of(const QueuedWrite& write) const {
    return std::any_of(awaited_.writes.begin(), awaited_.writes.end(),
                       [&](const auto& each) { return each.get() == &write; });
}

void LeaderTurn::abandon_commit() {
    assert(phase_ == Phase::awaits_commit);
    const Awaited awaited = std::exchange(awaited_, {});
    phase_ = Phase::writes;
    settle(awaited.writes, awaited.doubt);
    defer(awaited.after);
    lease_.reset();
}

// The latest deadline in the batch; nullopt if no member but the leader has time left.
std::optional<Deadline> LeaderTurn::time_of_others(Writes batch) const {
    std::optional<Deadline> latest;
    SteadyTime last = std::chrono::steady_clock::now();
    for (const auto& write : batch) {
        if (write.get() == own_ || write->deadline_.time() <= last) continue;
        last = write->deadline_.time();
        latest = write->deadline_;
    }
    return latest;
}

void LeaderTurn::write_batch(Writes batch) {
    Batch kept;  // Storage of `batch` after the first change.
    while (!batch.empty()) {
        // Keeps the order: nothing is written before earlier writes that were deferred.
        if (awaits_commit()) {
            awaited_.after.insert(awaited_.after.end(), batch.begin(), batch.end());
            return;
        }
        if (phase_ == Phase::defers) return defer(batch);
        if (!set_aside_.empty()) {
            kept = without_followers(batch);
            batch = kept;
            if (batch.empty()) return;
        }
        auto written = attempt(batch);
        if (written) return;
        if (attempt_.members_left) {
            kept = without_withdrawn(batch);
            batch = kept;
            continue;
        }
        if (queue_.writer_->commits_by_itself()) {
            kept = take_unsettled(batch);
            batch = kept;
            if (batch.empty()) return;
        }
        Error error = std::move(written).error();
        if (error.code == ErrorCode::outcome_unknown) {
            if (lease_ && (*lease_)->commit_is_open() && time_of_others(batch)) {
                awaited_ = {{batch.begin(), batch.end()}, {}, std::move(error)};
                phase_ = Phase::awaits_commit;
                return;
            }
            kept = settle_lost(batch, error);
            batch = kept;
            continue;
        }
        if (is_transient(error)) {
            lease_.reset();  // Other callers can use the connection during the pause.
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
        const bool cancelled = is_cancelled(error);
        was_cancelled_ |= cancelled;
        if (batch.size() > 1 && (cancelled || may_be_one_writes_fault(error))) {
            const std::size_t half = batch.size() / 2;
            const Batch first{batch.begin(), batch.begin() + static_cast<std::ptrdiff_t>(half)};
            const Batch second{batch.begin() + static_cast<std::ptrdiff_t>(half), batch.end()};
            write_batch(first);
            kept = second;
            batch = kept;
            continue;
        }
        const bool has_time = batch.front()->deadline_.time() - std::chrono::steady_clock::now() >
                              GroupQueue::kNoTime;
        if (!cancelled) return settle(batch, error);
        if (!has_time) return settle(batch, queue_.late_while_held());
        batch.front()->fate = QueuedWrite::Fate::row_held;
        (void)take_unsettled(batch);
        return;
    }
}

// True for the error of a statement that met a locked row and was cancelled.
bool LeaderTurn::is_cancelled(const Error& error) const {
    return queue_.writer_->commits_by_itself() && error.code == ErrorCode::deadline &&
           error.condition == SqlCondition::query_canceled;
}

Result<void> LeaderTurn::attempt(Writes batch) {
    attempt_ = {batch};
    const bool resumes = std::exchange(phase_, Phase::writes) == Phase::resumes;
    if (queue_.writer_->commits_by_itself()) return write_and_commit(batch, resumes);
    HOTCOUNT_TRY(resumes ? (*lease_)->await_commit(deadline_) : write_in_transaction(batch));
    queue_.writer_->committed();
    queue_.batches_.fetch_add(1, std::memory_order_relaxed);
    queue_.writes_.fetch_add(batch.size(), std::memory_order_relaxed);
    return {};
}

Result<void> LeaderTurn::write_in_transaction(Writes batch) {
    for (const auto& write : batch) write->error.reset();
    HOTCOUNT_TRY(begin_once());
    Connection& connection = **lease_;
    begun_ = false;
    auto written = queue_.writer_->write(connection, batch, *this);
    if (written) written = seal();
    if (written) return connection.commit();
    connection.rollback();
    return written;
}

Result<void> LeaderTurn::write_and_commit(Writes batch, bool resumes) {
    if (!resumes) {
        for (const auto& write : batch) {
            write->error.reset();
            write->fate = QueuedWrite::Fate::open;
        }
        HOTCOUNT_TRY(begin_once());
        begun_ = false;
    }
    Connection& connection = **lease_;
    auto result = queue_.writer_->write(connection, batch, *this);
    if (!connection.commit_is_open() && connection.in_transaction()) connection.rollback();
    std::uint64_t written = 0;
    for (const auto& write : batch) {
        if (result && !write->error && write->fate == QueuedWrite::Fate::open) {
            write->fate = QueuedWrite::Fate::written;
        }
        if (write->fate == QueuedWrite::Fate::written) ++written;
    }
    if (written > 0) {
        queue_.writer_->committed();
        queue_.batches_.fetch_add(1, std::memory_order_relaxed);
        queue_.writes_.fetch_add(written, std::memory_order_relaxed);
    }
    // If nothing was written, a deferred write follows no other and is tried again in this turn.
    if (result || written > 0) {
        (void)take_unsettled(batch);
    } else {
        for (const auto& write : batch) {
            if (write->fate == QueuedWrite::Fate::deferred) write->fate = QueuedWrite::Fate::open;
        }
    }
    return result;
}

// After write_and_commit(): returns the writes that it has neither written nor refused nor left to a
// later turn, and sets again_ of the latter.
LeaderTurn::Batch LeaderTurn::take_unsettled(Writes batch) {
    Batch unsettled;
    for (const auto& write : batch) {
        if (write->error || write->fate == QueuedWrite::Fate::written) continue;
        if (write->fate == QueuedWrite::Fate::open) {
            unsettled.push_back(write);
            continue;
        }
        write->again_ = true;
        set_aside_.insert(write->keys_.shared);
    }
    return unsettled;
}

// Returns the writes that share no row with writes left to a later turn. The others are left to it.
LeaderTurn::Batch LeaderTurn::without_followers(Writes batch) const {
    Batch others;
    for (const auto& write : batch) {
        if (!set_aside_.contains(write->keys_.shared)) {
            others.push_back(write);
            continue;
        }
        write->fate = QueuedWrite::Fate::deferred;
        write->again_ = true;
    }
    return others;
}

Duration LeaderTurn::waits_for() const { return held_row_wait_.value_or(Duration{0}); }

bool LeaderTurn::is_alone() {
    if (is_retry()) return false;
    const std::lock_guard lock(queue_.mutex_);
    return queue_.queued_ == 0 && queue_.held_.empty();
}

Alone LeaderTurn::alone(bool read_committed) {
    // A statement over several rows may run for 500 ms before it is cancelled. After a cancel, which
    // means a locked row, the next attempt gets 50 ms.
    constexpr Duration kPatience = std::chrono::milliseconds{50};
    constexpr Duration kPatienceWithMany = std::chrono::milliseconds{500};
    const bool many = groups_.size() != 1 || groups_.front()->writes.size() > 1;
    Alone how{deadline_, read_committed};
    how.patience = many && !was_cancelled_ ? kPatienceWithMany : kPatience;
    // Members of a batch wait for each other too, so a batch always gives way.
    how.gives_way = [this, many] {
        if (is_retry() || many) return true;
        const std::lock_guard lock(queue_.mutex_);
        return queue_.queued_ > 0;
    };
    return how;
}

// An error sets attempt_.members_left, and itself says nothing.
Result<void> LeaderTurn::seal() {
    const std::lock_guard lock(queue_.mutex_);
    bool some_left = false;
    for (const auto& group : groups_) {
        some_left |= group->withdrawn;
        // Once for each group: if its members' deadlines pass one after the other, the group would
        // never be written.
        group->stage = WriteGroup::Stage::sealed;
    }
    attempt_.members_left =
        some_left && std::any_of(attempt_.writes.begin(), attempt_.writes.end(),
                                 [](const auto& write) { return write->withdrawn_; });
    if (attempt_.members_left) return make_error(ErrorCode::deadline, "members have left");
    return {};
}

LeaderTurn::Batch LeaderTurn::without_withdrawn(Writes batch) {
    const std::lock_guard lock(queue_.mutex_);
    Batch kept;
    kept.reserve(batch.size());
    std::copy_if(batch.begin(), batch.end(), std::back_inserter(kept),
                 [](const auto& write) { return !write->withdrawn_; });
    return kept;
}

void LeaderTurn::defer(Writes batch) {
    for (const auto& write : batch) write->again_ = true;
}

void LeaderTurn::settle(Writes batch, const Error& error) {
    for (const auto& write : batch) {
        // A write that was refused alone keeps its error: nothing of it was applied.
        if (!write->error) write->error = error;
    }
}

// COMMIT was sent and never answered. Asks the current primary within the leader's deadline. Returns
// the writes that were not applied.
LeaderTurn::Batch LeaderTurn::settle_lost(Writes batch, const Error& error) {
    using Found = BatchWriter::Found;
    lease_.reset();
    Batch left;
    std::vector<Found> found(batch.size(), Found::unknown);
    Error unknown = error;
    if (const std::string lost = lost_session(error); !lost.empty()) {
        auto read =
            read_after_loss(*queue_.database_, deadline_, lost, [&](Connection& connection) {
                return queue_.writer_->find_applied(connection, batch);
            });
        if (read) {
            found = *std::move(read);
        } else {
            unknown.message += "; what became of it could not be read: " + read.error().message;
        }
    }
    std::uint64_t written = 0;
    for (std::size_t i = 0; i < batch.size(); ++i) {
        QueuedWrite& write = *batch[i];
        if (found[i] == Found::nothing_applied) left.push_back(batch[i]);
        if (found[i] == Found::unknown && !write.error) write.error = unknown;
        if (found[i] != Found::applied) continue;
        write.error.reset();
        write.fate = QueuedWrite::Fate::written;
        ++written;
    }
    if (written > 0) {
        queue_.writer_->committed();
        queue_.batches_.fetch_add(1, std::memory_order_relaxed);
        queue_.writes_.fetch_add(written, std::memory_order_relaxed);
    }
    return left;
}

// Leaves writes with a later deadline than the leader's to another turn. The others fail with `error`.
void LeaderTurn::leave_to_others(Writes batch, const Error& error) {
    const SteadyTime over = interrupted() ? std::chrono::steady_clock::now() : deadline_.time();
    for (const auto& write : batch) {
        if (write.get() != own_ && write->deadline_.time() > over) {
            write->again_ = true;
            phase_ = Phase::defers;
        } else {
            write->error = error;
        }
    }
}

}  // namespace hotcount::sql
