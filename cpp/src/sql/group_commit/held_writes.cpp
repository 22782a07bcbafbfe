// Writes whose rows other transactions hold, and the thread that writes them. See group_commit.hpp.
#include <algorithm>
#include <tuple>

#include "leader_turn.hpp"

namespace hotcount::sql {
namespace {

// Between two attempts at a locked row, doubled after each attempt. Shorter: an unlocked row is
// noticed earlier, and the server gets more statements. Each row has a pause of its own: a row that a
// fold has locked is retried after 5 ms, even while another row stays locked.
constexpr Duration kFirstPause = std::chrono::milliseconds{5};
constexpr Duration kLongestPause = std::chrono::milliseconds{100};
// After this time the held thread waits for a row's lock. If other transactions lock the row in
// turns, attempts that do not wait may never succeed.
constexpr Duration kWaitsAfter = std::chrono::seconds{1};
// While the held thread waits for one row it tries no other row. After a wait it therefore waits for
// no row for 9 times as long, so that waits take at most a tenth of its time.
constexpr int kRestAfterWait = 9;

}  // namespace

// The writes of one turn of the held thread.
struct GroupQueue::HeldBatch {
    std::vector<std::uint64_t> keys{};
    std::vector<std::shared_ptr<Group>> groups{};
    std::size_t writes{0};
    Deadline deadline{Deadline::at(SteadyTime::min())};  // The latest of the writes' deadlines.
    SteadyTime begun{};
    bool waits{false};
};

std::shared_ptr<WriteGroup> GroupQueue::make_held_group() {
    auto group = std::make_shared<Group>();
    group->stage = Stage::held;
    return group;
}

// All functions here but write_held() and end_held_turn() require the mutex. A write whose own row is
// held waits in that row's line, so that writes to one row stay in order.
GroupQueue::HeldByKey::iterator GroupQueue::find_held(const QueuedWrite& write) {
    if (held_.empty()) return held_.end();
    const auto row = held_.find(write.keys_.row);
    return row != held_.end() ? row : held_.find(write.keys_.shared);
}

void GroupQueue::hold(HeldByKey::iterator where, const std::shared_ptr<QueuedWrite>& write) {
    join(where->second.group, write);
    ++waits_held_;
    stop_waiting_for(*write);
}

void GroupQueue::leave_held(QueuedWrite& write) {
    waits_held_ -=
        std::erase_if(write.group_->writes, [&](const auto& each) { return each.get() == &write; });
    forget_empty();
}

void GroupQueue::forget_empty() {
    std::erase_if(held_, [](const auto& each) {
        return each.second.group->writes.empty() && !each.second.being_written;
    });
}

// After a turn: puts `left`, the writes for a later turn, before the writes that arrived meanwhile,
// held or queued. `known`: the rows that were held before this turn.
void GroupQueue::return_left(const std::vector<std::shared_ptr<QueuedWrite>>& left,
                             const HeldByKey& known, std::vector<WriteAnswer>& answers) {
    if (left.empty()) return;
    const SteadyTime now = std::chrono::steady_clock::now();
    bool more_held = false;
    bool more_rows = false;
    std::vector<std::pair<std::shared_ptr<Group>, std::vector<std::shared_ptr<QueuedWrite>>>> came;
    for (const auto& [key, held] : held_) {
        came.emplace_back(held.group, std::exchange(held.group->writes, {}));
    }
    for (const auto& write : left) {
        const bool shared = write->fate == QueuedWrite::Fate::shared_held;
        if (!shared && write->fate != QueuedWrite::Fate::row_held) continue;
        if (auto started = held_thread_.start(); !started) {
            write->error = std::move(started).error();
            continue;
        }
        const std::uint64_t key = shared ? write->keys_.shared : write->keys_.row;
        const auto [where, added] = held_.try_emplace(key);
        if (!added) continue;
        more_held = true;
        Held& held = where->second;
        held.group = make_held_group();
        if (const auto before = known.find(key); before != known.end()) {
            held.since = before->second.since;
            held.turn = before->second.turn;
            held.pause = std::min(2 * before->second.pause, kLongestPause);
            held.next_try = now + held.pause;
            continue;
        }
        held.since = now;
        held.pause = kFirstPause;
        held.next_try = now + held.pause;
        held.turn = ++turns_;
        held.follows = current_;
        more_rows |= !shared;
    }
    std::vector<std::shared_ptr<QueuedWrite>> back;
    for (const auto& write : left) {
        write->again_ = false;
        write->fate = QueuedWrite::Fate::open;
        const auto where = find_held(*write);
        const bool ends = write->error || (where != held_.end() && closed_);
        if (ends && !write->waited_for_) {
            write->gone_ = true;
            answers.push_back({write, write->error ? *write->error : closed_early()});
        } else if (write->error) {
            continue;
        } else if (where != held_.end()) {
            hold(where, write);
        } else {
            back.push_back(write);
        }
    }
    for (auto& [group, writes] : came) {
        group->writes.insert(group->writes.end(), writes.begin(), writes.end());
    }
    if (more_rows) hold_rows_apart();
    if (more_held) hold_queued();
    put_back(back);
    if (more_held) schedule_held();
}

// Moves writes that wait for their shared row to their own row's line if that row is held too. Such a
// group is replaced as a whole, which wakes its callers.
void GroupQueue::hold_rows_apart() {
    for (auto& each : held_) {
        Held& held = each.second;
        const auto& writes = held.group->writes;
        const auto stays = [&](const auto& write) {
            return find_held(*write)->second.group == held.group;
        };
        if (std::all_of(writes.begin(), writes.end(), stays)) continue;
        const std::shared_ptr<Group> before = std::exchange(held.group, make_held_group());
        waits_held_ -= before->writes.size();
        for (const auto& write : before->writes) hold(find_held(*write), write);
        wake(*before);
    }
}

// Moves queued writes that share a held row behind that row. Such a group is replaced as a whole, so
// that its callers wake and find their new group.
void GroupQueue::hold_queued() {
    bool called = false;  // A caller was asked to lead and has not woken yet.
    std::deque<std::shared_ptr<Group>> groups;
    groups.swap(groups_);
    for (const auto& group : groups) {
        std::vector<std::shared_ptr<QueuedWrite>> stay;
        for (const auto& write : group->writes) {
            if (find_held(*write) == held_.end()) stay.push_back(write);
        }
        if (stay.size() == group->writes.size()) {
            groups_.push_back(group);
            continue;
        }
        for (const auto& write : group->writes) {
            if (const auto where = find_held(*write); where != held_.end()) hold(where, write);
        }
        queued_ -= group->writes.size() - stay.size();
        group->writes.clear();
        if (!stay.empty()) {
            groups_.push_back(std::make_shared<Group>());
            for (const auto& write : stay) join(groups_.back(), write);
        }
        called |= group->turn.is_set();
        group->answered.set();
        group->turn.set();
    }
    if (called) pass_leadership();
}

// -- the held thread -----------------------------------------------------------------------------

// Schedules the held thread for the earliest Held::next_try.
void GroupQueue::schedule_held() {
    if (held_thread_writes_) return;  // The end of its turn schedules the next.
    SteadyTime first = SteadyTime::max();
    for (const auto& [key, held] : held_) first = std::min(first, held.next_try);
    if (next_held_turn_ <= first) return;
    next_held_turn_ = first;
    held_thread_.run_at(first, [weak = weak_from_this(), first] {
        if (const auto self = weak.lock()) self->write_held(first);
    });
}

void GroupQueue::take_held(HeldByKey::iterator where, HeldBatch& batch) {
    Held& held = where->second;
    const std::shared_ptr<Group> group = std::exchange(held.group, make_held_group());
    held.being_written = true;
    auto& writes = group->writes;
    const std::size_t room = std::max<std::size_t>(1, options_.max_batch - batch.writes);
    if (writes.size() > room) {
        const auto rest = writes.begin() + static_cast<std::ptrdiff_t>(room);
        held.group->writes.assign(rest, writes.end());
        held.group->expiry = group->expiry;
        writes.erase(rest, writes.end());
        for (const auto& later : held.group->writes) later->group_ = held.group;
    }
    waits_held_ -= writes.size();
    for (const auto& write : writes) {
        if (write->deadline_.time() > batch.deadline.time()) batch.deadline = write->deadline_;
    }
    group->stage = Stage::writing;
    batch.writes += writes.size();
    batch.keys.push_back(where->first);
    batch.groups.push_back(group);
}

// Takes the rows that are due. If a wait is due too, the next turn waits for one row that has been
// held for longer than kWaitsAfter; such rows take turns.
void GroupQueue::take_held(HeldBatch& batch) {
    const SteadyTime now = batch.begun;
    forget_empty();
    auto longest = held_.end();
    bool some_young = false;
    std::vector<std::tuple<Duration, std::uint64_t, std::uint64_t>> due;
    for (auto each = held_.begin(); each != held_.end(); ++each) {
        Held& held = each->second;
        if (held.follows != nullptr && held.follows == current_) {
            held.next_try = std::max(held.next_try, now + kFirstPause);
            continue;
        }
        const bool young = now - held.since < kWaitsAfter;
        // Rows that are due soon are tried now, so that rows held for long share a batch.
        if (held.next_try - now <= held.pause / 2) {
            due.emplace_back(held.pause, held.turn, each->first);
            some_young |= young;
        }
        if (young) continue;
        if (longest == held_.end() || held.turn < longest->second.turn) longest = each;
    }
    const bool may_wait = longest != held_.end() && now >= next_wait_;
    batch.waits = may_wait && (!some_young || wait_was_put_off_);
    wait_was_put_off_ = may_wait && !batch.waits;
    if (batch.waits) {
        take_held(longest, batch);
        longest->second.turn = ++turns_;
        return;
    }
    std::sort(due.begin(), due.end());
    for (const auto& [pause, turn, key] : due) {
        if (batch.writes >= options_.max_batch) break;
        take_held(held_.find(key), batch);
    }
}

void GroupQueue::write_held(SteadyTime scheduled) {
    HeldBatch batch;
    {
        const std::lock_guard lock(mutex_);
        if (scheduled != next_held_turn_) return;  // An earlier turn has replaced this one.
        next_held_turn_ = SteadyTime::max();
        batch.begun = std::chrono::steady_clock::now();
        take_held(batch);
        if (batch.groups.empty()) return schedule_held();
        held_thread_writes_ = true;
        held_being_written_ = batch.groups;
    }
    LeaderTurn leader{*this, batch.deadline, batch.waits};
    if (auto begun = leader.begin(); !begun) {
        leader.fail(batch.groups, begun.error());
    } else {
        leader.run(batch.groups);  // Its deadline is the latest, so no commit is left open.
    }
    end_held_turn(batch);
}

void GroupQueue::end_held_turn(const HeldBatch& batch) {
    std::vector<WriteAnswer> answers;
    std::vector<std::shared_ptr<Group>> behind;
    {
        const std::lock_guard lock(mutex_);
        std::vector<std::shared_ptr<QueuedWrite>> left;
        HeldByKey known;
        for (std::size_t i = 0; i < batch.keys.size(); ++i) {
            const auto still = settle(batch.groups[i], answers);
            batch.groups[i]->stage = Stage::settled;
            left.insert(left.end(), still.begin(), still.end());
            // Writes that arrived meanwhile follow.
            const auto held = held_.find(batch.keys[i]);
            behind.push_back(held->second.group);
            const auto& came = behind.back()->writes;
            left.insert(left.end(), came.begin(), came.end());
            waits_held_ -= came.size();
            known.insert(held_.extract(held));
        }
        return_left(left, known, answers);
        held_being_written_.clear();
        if (!leading_ && !groups_.empty()) {
            leading_ = true;
            pass_leadership();
        }
        const SteadyTime now = std::chrono::steady_clock::now();
        if (batch.waits) next_wait_ = now + kRestAfterWait * (now - batch.begun);
        held_thread_writes_ = false;
        schedule_held();
    }
    for (const auto& group : behind) wake(*group);
    // In the pool, because other held rows wait for this thread.
    if (writer_->works_before_answers() && pool_.start()) {
        pool_.run([self = shared_from_this(), groups = batch.groups, deadline = batch.deadline] {
            self->wake_when_done(groups, deadline);
        });
    } else {
        wake_when_done(batch.groups, batch.deadline);
    }
    answer_in_pool(std::move(answers));
}

}  // namespace hotcount::sql
