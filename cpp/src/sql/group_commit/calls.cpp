// Calls that do not wait: how they are handed in, when they end, and who calls their completions.
#include <algorithm>

#include "queue.hpp"

namespace hotcount::sql {
namespace {

// The least time between two checks of the deadlines of calls in flight.
constexpr Duration kBetweenExpiries = std::chrono::milliseconds{2};

}  // namespace

// A call of submit_all_async: handed in portion by portion.
struct GroupQueue::Portions {
    Portions(std::vector<std::shared_ptr<QueuedWrite>> to_write, Deadline until,
             std::function<void(std::vector<Result<void>>)> when_done)
        : writes(std::move(to_write)),
          deadline(until),
          done(std::move(when_done)),
          results(writes.size()) {}
    const std::vector<std::shared_ptr<QueuedWrite>> writes;
    const Deadline deadline;
    std::function<void(std::vector<Result<void>>)> done;
    std::vector<Result<void>> results;
    std::size_t begun{0};              // Writes that were handed in.
    std::atomic<std::size_t> open{0};  // Those not answered yet, and one while they are handed in.
};

void GroupQueue::submit_async(std::shared_ptr<QueuedWrite> write, Deadline deadline,
                              Completion<void> done) {
    write->done_ = std::move(done);
    if (auto queued = enqueue_async(std::span{&write, 1}, deadline); !queued) {
        std::exchange(write->done_, nullptr)(std::move(queued).error());
    }
}

void GroupQueue::submit_all_async(std::vector<std::shared_ptr<QueuedWrite>> writes,
                                  Deadline deadline,
                                  std::function<void(std::vector<Result<void>>)> done) {
    const auto call = std::make_shared<Portions>(std::move(writes), deadline, std::move(done));
    hand_in(call);
}

// The next portion, and those after it if it is answered at once.
void GroupQueue::hand_in(const std::shared_ptr<Portions>& call) {
    const std::size_t most = std::max<std::size_t>(1, options_.max_queue / 2);
    while (call->begun < call->writes.size()) {
        const std::size_t first = call->begun;
        const std::size_t size = std::min(most, call->writes.size() - first);
        call->begun += size;
        call->open.store(size + 1, std::memory_order_relaxed);
        const auto writes = Writes{call->writes}.subspan(first, size);
        for (std::size_t i = 0; i < size; ++i) {
            // Called by this queue, so it is there then.
            writes[i]->done_ = [this, call, index = first + i](Result<void> result) {
                call->results[index] = std::move(result);
                if (call->open.fetch_sub(1, std::memory_order_acq_rel) == 1) hand_in(call);
            };
        }
        if (auto queued = enqueue_async(writes, call->deadline); !queued) {
            for (std::size_t i = 0; i < size; ++i) {
                writes[i]->done_ = nullptr;
                call->results[first + i] = queued;
            }
            continue;
        }
        if (call->open.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    }
    std::exchange(call->done, nullptr)(std::move(call->results));
}

Result<void> GroupQueue::enqueue_async(Writes writes, Deadline deadline) {
    HOTCOUNT_TRY(pool_.start());
    const std::lock_guard lock(mutex_);
    if (closed_) {
        return make_error(ErrorCode::closed, database_->name() +
                                                 ": writes end here; nothing was "
                                                 "applied");
    }
    for (const auto& write : writes) write->waited_for_ = false;
    std::shared_ptr<QueuedWrite> leads;
    HOTCOUNT_TRY(enqueue(writes, deadline, leads));
    in_flight_ += writes.size();
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
    std::vector<WriteAnswer> expired;
    {
        const std::lock_guard lock(mutex_);
        if (scheduled != expiry_) return;  // Another look was taken, or is to be taken earlier.
        expired = take_expired(std::chrono::steady_clock::now());
    }
    answer(std::move(expired));
}

// Under the mutex: ends the calls whose deadlines have passed, and says when to look again.
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
    take_out_held([&](const auto& write) {
        if (!is_late(*write)) return false;
        write->gone_ = true;
        expired.push_back({write, late_while_held()});
        return true;
    });
    // A copy: groups go with their last writes.
    for (const auto& group : std::deque(groups_)) {
        take_out(group, [&](const auto& write) {
            if (!is_late(*write)) return false;
            write->gone_ = true;
            expired.push_back({write, late_in_queue()});
            return true;
        });
    }
    expiry_ = SteadyTime::max();
    if (next != SteadyTime::max()) expire_at(std::max(next, now + kBetweenExpiries));
    return expired;
}

void GroupQueue::answer(std::vector<WriteAnswer> answers) {
    if (answers.empty()) return;
    const CompletionBatch batch;
    writer_->before_answers(answers);
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
