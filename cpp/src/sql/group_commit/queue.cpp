#include "queue.hpp"

#include <algorithm>
#include <iterator>

#include "leader_turn.hpp"

namespace hotcount::sql {
GroupQueue::GroupQueue(std::shared_ptr<Database> database, std::shared_ptr<BatchWriter> writer,
                       GroupCommitOptions options)
    : database_(std::move(database)),
      writer_(std::move(writer)),
      options_(options),
      portion_(std::min(options.max_batch, options.max_queue / 2)),
      pool_(options.workers) {}

GroupCommit::Stats GroupQueue::stats() const {
    GroupCommit::Stats stats{batches_.load(std::memory_order_relaxed),
                             writes_.load(std::memory_order_relaxed), 0, 0, Duration{0}};
    const SteadyTime now = std::chrono::steady_clock::now();
    const std::lock_guard lock(mutex_);
    stats.waiting = queued_;
    stats.held = waits_held_;
    for (const auto& group : held_being_written_) stats.held += group->writes.size();
    for (const auto& [key, held] : held_) {
        stats.held_for = std::max(stats.held_for, Duration{now - held.since});
    }
    return stats;
}

// -- callers ----------------------------------------------------------------

Result<void> GroupQueue::submit(const std::shared_ptr<QueuedWrite>& write, Deadline deadline) {
    std::shared_ptr<QueuedWrite> leads;
    {
        const std::lock_guard lock(mutex_);
        if (!has_room(1)) return full();
        enqueue(std::span{&write, 1}, deadline, false, leads);
    }
    if (leads != nullptr) {
        if (auto answer = lead_once(write.get(), deadline)) return *std::move(answer);
    }
    return *await(write, deadline, false);
}

// Requires the mutex.
bool GroupQueue::has_room(std::size_t writes) const {
    return queued_ + waits_held_ + writes <= options_.max_queue;
}

Error GroupQueue::full() {
    Error error =
        make_error(ErrorCode::capacity, database_->name() + ": the write queue is full (" +
                                            std::to_string(options_.max_queue) +
                                            " writes wait); nothing was applied");
    full_queue_.begin(error.message);
    return error;
}

// Requires the mutex. `large`: the writes are one portion of a larger call. `leads`: set to the write
// whose caller becomes leader.
void GroupQueue::enqueue(Writes writes, Deadline deadline, bool large,
                         std::shared_ptr<QueuedWrite>& leads) {
    if (!large) portion_.note_other();
    // A queue that was full has room again when half of it is free.
    if (queued_ + waits_held_ <= options_.max_queue / 2) full_queue_.end();
    for (const auto& write : writes) {
        write->deadline_ = deadline;
        write->one_of_many_ = large || writes.size() > 1;
        if (const auto held = find_held(*write); held != held_.end()) {
            hold(held, write);
            continue;
        }
        if (groups_.empty() || groups_.back()->writes.size() >= options_.max_batch) {
            groups_.push_back(std::make_shared<Group>());
        }
        join(groups_.back(), write);
        ++queued_;
        if (leading_) continue;
        leading_ = true;
        leads = write;
    }
    if (wanted_ > 0 && queued_ >= wanted_) {
        wanted_ = 0;
        gathered_.notify_one();
    }
}

// Requires the mutex.
void GroupQueue::join(const std::shared_ptr<Group>& group,
                      const std::shared_ptr<QueuedWrite>& write) {
    write->group_ = group;
    group->writes.push_back(write);
    note_expiry(*group, *write);
}

// Returns nullopt if `unless_held` is set and the held thread has the write.
std::optional<Result<void>> GroupQueue::await(const std::shared_ptr<QueuedWrite>& write,
                                              Deadline deadline, bool unless_held) {
    bool late = false;
    while (true) {
        std::shared_ptr<Group> group;
        bool first = false;
        {
            const std::lock_guard lock(mutex_);
            group = write->group_;
            if (unless_held && waits_for_rows(*group)) return std::nullopt;
            first = group->stage == Stage::queued && group->writes.front() == write;
        }
        const bool woken = (first ? group->turn : group->answered)
                               .wait(late ? Deadline::at(deadline.time() + kGrace) : deadline);
        {
            const std::lock_guard lock(mutex_);
            if (write->group_ != group) {
                late = false;
                continue;
            }
            first = group->stage == Stage::queued && group->writes.front() == write;
            // A wakeup between wait() and this lock is still valid.
            if (group->stage == Stage::settled) {
                return write->error ? Result<void>{*write->error} : Result<void>{};
            }
            if (!group->answered.is_set()) {
                if (!first || !group->turn.is_set()) {
                    if (woken) continue;
                    if (late || !is_in_statement(*group)) return give_up(*write);
                    late = true;
                    continue;
                }
            } else {
                first = false;
            }
            // The held thread may have inserted groups before this one. Then this caller leads one
            // of them, and leads its own later.
            if (first) group->turn.clear();
        }
        if (first) {
            if (auto answer = lead_once(write.get(), deadline)) return *std::move(answer);
            continue;
        }
        if (write->error) return *write->error;
        return {};
    }
}

// Requires the mutex. Takes the write out of the queue at its caller's deadline. Returns the caller's
// error.
Error GroupQueue::give_up(QueuedWrite& write) {
    const std::shared_ptr<Group> group = write.group_;
    write.gone_ = true;
    if (group->stage == Stage::queued) {
        take_out(group, [&](const auto& each) { return each.get() == &write; });
        return late_in_queue();
    }
    if (group->stage == Stage::held) {
        leave_held(write);
        return late_while_held();
    }
    if (group->stage == Stage::writing) {
        group->withdrawn = true;
        write.withdrawn_ = true;
        if (group != current_) return late_while_held();  // The held thread writes it.
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
    // The leader waits for a connection.
    if (const auto refusal = database_->out_of_room()) {
        if (refusal->condition == SqlCondition::read_only) return *refusal;
        return make_error(
            ErrorCode::deadline,
            refusal->message + "; no connection came free until the deadline; nothing was applied",
            refusal->server_code, refusal->condition);
    }
    return make_error(ErrorCode::deadline,
                      database_->name() +
                          ": the deadline passed while waiting to be written; nothing was applied");
}

Error GroupQueue::late_while_held() const {
    return make_error(ErrorCode::deadline,
                      database_->name() +
                          ": the deadline passed while another transaction held the row; nothing "
                          "was applied");
}

// Requires the mutex. Inserts writes at the front of the queue, in order.
void GroupQueue::put_back(const std::vector<std::shared_ptr<QueuedWrite>>& writes) {
    std::vector<std::shared_ptr<Group>> groups;
    for (const auto& write : writes) {
        if (groups.empty() || groups.back()->writes.size() >= options_.max_batch) {
            groups.push_back(std::make_shared<Group>());
        }
        join(groups.back(), write);
    }
    queued_ += writes.size();
    groups_.insert(groups_.begin(), groups.begin(), groups.end());
}

// -- leaders ----------------------------------------------------------------

// Requires the mutex.
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
        // Writes with earlier deadlines leave in await() or expire().
        for (const auto& write : groups_.front()->writes) {
            if (write->deadline_.time() > deadline.time()) deadline = write->deadline_;
        }
    }
    (void)lead_once(nullptr, deadline);
}

// Returns the result of `own`, or nullopt if a later turn or a pool thread settles it.
std::optional<Result<void>> GroupQueue::lead_once(QueuedWrite* own, Deadline deadline) {
    linger(deadline);
    const SteadyTime started = std::chrono::steady_clock::now();
    std::shared_ptr<Group> group;
    auto leader = std::make_shared<LeaderTurn>(*this, own, deadline);
    bool own_is_settled = false;
    if (auto begun = leader->begin(); !begun) {
        group = fail_first(own, deadline, begun.error(), own_is_settled);
    } else if (group = take_group(own, own_is_settled); group != nullptr) {
        leader->run({group});
    }
    if (leader->awaits_commit()) {
        if (own == nullptr) {
            leader->resume();
        } else if (pool_.start()) {
            return leave_commit_to_pool(*own, own_is_settled, std::move(leader), std::move(group),
                                        started);
        } else {
            leader->abandon_commit();
        }
    }
    std::optional<Result<void>> answer;
    if (own_is_settled && !own->again_) {
        answer = own->error ? Result<void>{*own->error} : Result<void>{};
    }
    end_turn(std::move(leader), group, started);
    return answer;
}

// The leading caller's deadline has passed, and other members of its group have time left. A thread
// of the pool takes over the commit and the leadership.
std::optional<Result<void>> GroupQueue::leave_commit_to_pool(QueuedWrite& own, bool own_is_settled,
                                                             std::shared_ptr<LeaderTurn> leader,
                                                             std::shared_ptr<Group> group,
                                                             SteadyTime started) {
    const std::lock_guard lock(mutex_);
    std::optional<Result<void>> answer;
    if (leader->awaits_commit_of(own)) {
        answer = give_up(own);
    } else if (own_is_settled && !own.again_) {  // Its half of the group is already settled.
        answer = own.error ? Result<void>{*own.error} : Result<void>{};
    }
    ++in_flight_;  // close() waits for it.
    pool_.run(
        [self = shared_from_this(), leader = std::move(leader), group = std::move(group), started] {
            leader->resume();
            self->end_turn(leader, group, started);
            const std::lock_guard ended(self->mutex_);
            if (--self->in_flight_ == 0) self->none_in_flight_.notify_all();
        });
    return answer;
}

void GroupQueue::end_turn(std::shared_ptr<LeaderTurn> leader, const std::shared_ptr<Group>& group,
                          SteadyTime started) {
    std::vector<WriteAnswer> answers;
    const Deadline deadline = leader->deadline();
    {
        const Duration took = std::chrono::steady_clock::now() - started;
        const std::lock_guard lock(mutex_);
        if (group != nullptr) {
            const auto left = settle(group, answers);
            const std::size_t settled = group->writes.size() - left.size();
            return_left(left, {}, answers);
            group->stage = Stage::settled;
            expected_ = settled + queued_;
            patience_ = took / 2;
        }
        current_.reset();
        // Leadership passes before the answers: the next transaction starts while the callers of
        // this one wake.
        pass_leadership();
    }
    leader.reset();  // Returns its connection if there was nothing to write.
    if (group != nullptr) wake_when_done({group}, deadline);
    if (pool_.is_own_thread()) {
        answer(std::move(answers));
    } else {
        answer_in_pool(std::move(answers));
    }
}

// Call after each write of the group has a result or has moved to another group.
void GroupQueue::wake(Group& group) {
    group.answered.set();
    group.turn.set();
    group.writes.clear();  // Writes and group refer to each other; this ends the cycle.
}

// Runs before_answers(), then wake().
void GroupQueue::wake_when_done(std::vector<std::shared_ptr<Group>> groups, Deadline deadline) {
    std::function<void()> afterwards;
    if (writer_->works_before_answers()) {
        std::vector<WriteAnswer> written;
        {
            const std::lock_guard lock(mutex_);
            for (const auto& group : groups) {
                for (const auto& write : group->writes) {
                    if (write->group_ != group || write->gone_ || !write->waited_for_) continue;
                    if (!write->error) written.push_back({write, std::nullopt});
                }
            }
        }
        if (!written.empty()) afterwards = writer_->before_answers(written, deadline);
    }
    if (afterwards && !pool_.is_own_thread()) {
        // This caller returns later, so the next leader does not linger for it.
        const std::lock_guard lock(mutex_);
        if (expected_ > 1) --expected_;
    }
    for (const auto& group : groups) wake(*group);
    if (afterwards) afterwards();
}

// Requires the mutex. Returns the writes left for a later turn, in order, and appends finished
// asynchronous writes to `answers`.
std::vector<std::shared_ptr<QueuedWrite>> GroupQueue::settle(const std::shared_ptr<Group>& group,
                                                             std::vector<WriteAnswer>& answers) {
    std::vector<std::shared_ptr<QueuedWrite>> left;
    for (const auto& write : group->writes) {
        if (write->gone_) continue;
        if (write->again_) {
            left.push_back(write);
        } else if (!write->waited_for_) {
            write->gone_ = true;
            answers.push_back({write, write->error});
        }
    }
    return left;
}

// No transaction could be begun. If the reason is a deadline, only the writes with that deadline fail,
// otherwise all members of the transaction. Returns their group after taking it from the queue.
std::shared_ptr<WriteGroup> GroupQueue::fail_first(QueuedWrite* own, Deadline deadline,
                                                   const Error& error, bool& own_is_settled) {
    const bool late = error.code == ErrorCode::deadline;
    if (late && own != nullptr) {
        const std::lock_guard lock(mutex_);
        if (own->group_->stage == Stage::held) {
            leave_held(*own);
        } else {
            take_out(own->group_, [&](const auto& each) { return each.get() == own; });
        }
        own->error = error;
        own_is_settled = true;
        return nullptr;
    }
    std::shared_ptr<Group> group = take_group(own, own_is_settled);
    if (group != nullptr && late && deadline.passed()) {
        // Writes queued after the leader chose its deadline may have later ones.
        const std::lock_guard lock(mutex_);
        const Error expired = late_in_queue();
        for (const auto& write : group->writes) {
            write->again_ = write->deadline_.time() > deadline.time();
            if (!write->again_) write->error = expired;
        }
        return group;
    }
    if (group != nullptr) {
        for (const auto& write : group->writes) write->error = error;
    }
    return group;
}

// Waits for more writes. Callers in a closed loop return a moment after their answer. A leader that
// does not linger writes half of them now, and the other half waits for its fsync: 64 callers on 2
// cores settled at 32 votes a transaction. The leader expects all callers that were answered or
// waited in the previous turn; if some do not return, the next leader expects fewer.
void GroupQueue::linger(Deadline deadline) {
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

// Only the leader takes groups. Returns null if all members have left. The held thread may have
// inserted groups before the leader's own.
std::shared_ptr<WriteGroup> GroupQueue::take_group(const QueuedWrite* own, bool& has_own) {
    const std::lock_guard lock(mutex_);
    if (groups_.empty()) return nullptr;
    current_ = std::move(groups_.front());
    groups_.pop_front();
    queued_ -= current_->writes.size();
    current_->stage = Stage::writing;
    has_own = own != nullptr && own->group_ == current_;
    return current_;
}

// Requires the mutex.
void GroupQueue::pass_leadership() {
    if (groups_.empty()) {
        leading_ = false;
        return;
    }
    // The caller of many writes may be waiting for another of them, which is held.
    const QueuedWrite& first = *groups_.front()->writes.front();
    const bool stuck = first.one_of_many_ && writer_->commits_by_itself() && pool_.start();
    if (first.waited_for_ && !stuck) {
        groups_.front()->turn.set();
    } else {
        ask_pool_to_lead();
    }
}

}  // namespace hotcount::sql
