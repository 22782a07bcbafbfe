// Asynchronous calls: queueing, deadlines, completions and close().
#include "queue.hpp"

namespace hotcount::sql {
namespace {

// The least time between two checks of the deadlines of calls in flight.
constexpr Duration kBetweenExpiries = std::chrono::milliseconds{2};

}  // namespace

void GroupQueue::submit_async(std::shared_ptr<QueuedWrite> write, Deadline deadline,
                              Completion<void> done) {
    write->done_ = std::move(done);
    const auto queued = enqueue_async(std::span{&write, 1}, deadline, false);
    if (queued && *queued) return;
    std::exchange(write->done_, nullptr)(queued ? full() : queued.error());
}

// Returns false if there is no room.
Result<bool> GroupQueue::enqueue_async(Writes writes, Deadline deadline, bool large) {
    HOTCOUNT_TRY(pool_.start());
    const std::lock_guard lock(mutex_);
    if (closed_) {
        return make_error(ErrorCode::closed, database_->name() +
                                                 ": writes end here; nothing was "
                                                 "applied");
    }
    if (!has_room(writes.size())) return false;
    for (const auto& write : writes) write->waited_for_ = false;
    std::shared_ptr<QueuedWrite> leads;
    enqueue(writes, deadline, large, leads);
    in_flight_ += writes.size();
    expire_at(deadline.time());
    if (leads != nullptr) ask_pool_to_lead();
    return true;
}

// Requires the mutex.
void GroupQueue::expire_at(SteadyTime time) {
    if (time >= expiry_) return;
    expiry_ = time;
    pool_.run_at(time, [weak = weak_from_this(), time] {
        if (const auto self = weak.lock()) self->expire(time);
    });
}

void GroupQueue::expire(SteadyTime scheduled) {
    std::vector<WriteAnswer> expired;
    {
        const std::lock_guard lock(mutex_);
        if (scheduled != expiry_) return;  // Another check has run, or is scheduled earlier.
        expired = take_expired(std::chrono::steady_clock::now());
    }
    answer(std::move(expired));
}

// Requires the mutex. Takes out the calls whose deadlines have passed and schedules the next check.
std::vector<WriteAnswer> GroupQueue::take_expired(SteadyTime now) {
    std::vector<WriteAnswer> expired;
    SteadyTime next = SteadyTime::max();
    const auto is_late = [&](const QueuedWrite& write, Duration grace = {}) {
        if (write.waited_for_ || write.gone_) return false;
        if (write.deadline_.time() <= now - grace) return true;
        next = std::min(next, write.deadline_.time());
        return false;
    };
    const auto expire_written = [&](const Group& group) {
        const Duration grace = is_in_statement(group) ? kGrace : Duration{0};
        for (const auto& write : group.writes) {
            if (is_late(*write, grace)) expired.push_back({write, give_up(*write)});
        }
    };
    if (current_ != nullptr) expire_written(*current_);
    for (const auto& group : held_being_written_) expire_written(*group);
    // A queue may be long: a group whose expiry is not reached is not searched.
    const auto expire_waiting = [&](Group& group, const auto& take, const Error& why) {
        if (group.expiry > now) {
            next = std::min(next, group.expiry);
            return;
        }
        group.expiry = SteadyTime::max();
        take([&](const auto& write) {
            if (!is_late(*write)) {
                note_expiry(group, *write);
                return false;
            }
            write->gone_ = true;
            expired.push_back({write, why});
            return true;
        });
    };
    for (auto& [key, held] : held_) {
        Group& group = *held.group;
        expire_waiting(
            group, [&](const auto& leaves) { waits_held_ -= std::erase_if(group.writes, leaves); },
            late_while_held());
    }
    forget_empty();
    // A copy, because take_out() removes empty groups from groups_.
    for (const auto& group : std::deque(groups_)) {
        expire_waiting(
            *group, [&](const auto& leaves) { take_out(group, leaves); }, late_in_queue());
    }
    expiry_ = SteadyTime::max();
    if (next != SteadyTime::max()) expire_at(std::max(next, now + kBetweenExpiries));
    return expired;
}

void GroupQueue::answer(std::vector<WriteAnswer> answers) {
    if (answers.empty()) return;
    const CompletionBatch batch;
    Deadline latest = Deadline::at(SteadyTime::min());
    for (const WriteAnswer& each : answers) {
        if (each.write->deadline_.time() > latest.time()) latest = each.write->deadline_;
    }
    if (const auto rest = writer_->before_answers(answers, latest)) rest();
    for (WriteAnswer& each : answers) {
        const Completion<void> done = std::exchange(each.write->done_, nullptr);
        done(each.error ? Result<void>{std::move(*each.error)} : Result<void>{});
    }
    const std::lock_guard lock(mutex_);
    in_flight_ -= answers.size();
    if (in_flight_ == 0) none_in_flight_.notify_all();
}

void GroupQueue::answer_in_pool(std::vector<WriteAnswer> answers) {
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
    std::vector<WriteAnswer> ended;
    {
        const std::lock_guard lock(mutex_);
        closed_ = true;
        const Error error = closed_early();
        const auto ends = [&](const auto& write) {
            if (write->waited_for_) return false;
            write->gone_ = true;
            ended.push_back({write, error});
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
