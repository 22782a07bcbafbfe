// Writes whose rows other transactions hold, and the lane that writes them. See group_commit.hpp.
#include <algorithm>

#include "write.hpp"

namespace hotcount::sql {
namespace {

// Between two looks at what is held. Shorter: a row that is free again is noticed earlier, and the
// server is asked more often.
constexpr Duration kFirstPause = std::chrono::milliseconds{5};
constexpr Duration kLongestPause = std::chrono::milliseconds{100};
// From when on the lane waits for a row: who only looks may never find free what others take by
// turns.
constexpr Duration kWaitsAfter = std::chrono::seconds{1};

}  // namespace

// One turn of the lane: what it writes.
struct GroupQueue::Look {
    std::vector<std::uint64_t> keys{};
    std::vector<std::shared_ptr<Group>> groups{};
    std::size_t tickets{0};
    Deadline deadline{Deadline::at(SteadyTime::min())};  // The last of theirs.
    bool waits{false};
};

std::shared_ptr<TicketGroup> GroupQueue::make_held_group() {
    auto group = std::make_shared<Group>();
    group->queued = false;
    group->held = true;
    return group;
}

// Under the mutex, as all here but look_at_held() and end_look(). What waits for the row itself waits
// there, so that writes to one row stay in one line.
GroupQueue::HeldByKey::iterator GroupQueue::find_held(const Ticket& ticket) {
    if (held_.empty()) return held_.end();
    const auto row = held_.find(ticket.keys_.row);
    return row != held_.end() ? row : held_.find(ticket.keys_.shared);
}

void GroupQueue::hold(HeldByKey::iterator where, const std::shared_ptr<Ticket>& ticket) {
    ticket->group_ = where->second.group;
    ticket->group_->tickets.push_back(ticket);
    ++waits_held_;
}

void GroupQueue::leave_held(Ticket& ticket) {
    waits_held_ -= std::erase_if(ticket.group_->tickets,
                                 [&](const auto& each) { return each.get() == &ticket; });
    forget_empty();
}

void GroupQueue::forget_empty() {
    std::erase_if(held_, [](const auto& each) {
        return each.second.group->tickets.empty() && !each.second.looked_at;
    });
}

// After a turn: `left` are to be written by another one, in order. They go before those who came
// meanwhile: those behind what holds them, or those in the queue. `known`: what was held before, and
// since when.
void GroupQueue::return_left(const std::vector<std::shared_ptr<Ticket>>& left,
                             const HeldByKey& known, std::vector<TicketAnswer>& answers) {
    if (left.empty()) return;
    const SteadyTime now = std::chrono::steady_clock::now();
    bool more_held = false;
    bool more_rows = false;
    std::vector<std::pair<std::shared_ptr<Group>, std::vector<std::shared_ptr<Ticket>>>> came;
    for (const auto& [key, held] : held_) {
        came.emplace_back(held.group, std::exchange(held.group->tickets, {}));
    }
    for (const auto& ticket : left) {
        const bool shared = ticket->fate == Ticket::Fate::shared_held;
        if (!shared && ticket->fate != Ticket::Fate::row_held) continue;
        if (auto started = lane_.start(); !started) {
            ticket->error = std::move(started).error();
            continue;
        }
        const std::uint64_t key = shared ? ticket->keys_.shared : ticket->keys_.row;
        const auto [where, added] = held_.try_emplace(key);
        if (!added) continue;
        more_held = true;
        Held& held = where->second;
        held.group = make_held_group();
        if (const auto before = known.find(key); before != known.end()) {
            held.since = before->second.since;
            held.turn = before->second.turn;
            continue;
        }
        held.since = now;
        held.turn = ++turns_;
        held.follows = current_;
        more_rows |= !shared;
    }
    std::vector<std::shared_ptr<Ticket>> back;
    for (const auto& ticket : left) {
        ticket->again_ = false;
        ticket->fate = Ticket::Fate::open;
        const auto where = find_held(*ticket);
        const bool ends = ticket->error || (where != held_.end() && closed_);
        if (ends && !ticket->waited_for_) {
            ticket->gone_ = true;
            answers.push_back({ticket, ticket->error ? *ticket->error : closed_early()});
        } else if (ticket->error) {
            continue;
        } else if (where != held_.end()) {
            hold(where, ticket);
        } else {
            back.push_back(ticket);
        }
    }
    for (auto& [group, tickets] : came) {
        group->tickets.insert(group->tickets.end(), tickets.begin(), tickets.end());
    }
    if (more_rows) hold_rows_apart();
    if (more_held) hold_queued();
    put_back(back);
    if (more_held) schedule_look();
}

// Those who wait for what a row shares with others, and write to a row that was found held itself,
// wait for that. Whole groups are made anew here too.
void GroupQueue::hold_rows_apart() {
    for (auto& each : held_) {
        Held& held = each.second;
        const auto& tickets = held.group->tickets;
        const auto stays = [&](const auto& ticket) {
            return find_held(*ticket)->second.group == held.group;
        };
        if (std::all_of(tickets.begin(), tickets.end(), stays)) continue;
        const std::shared_ptr<Group> before = std::exchange(held.group, make_held_group());
        waits_held_ -= before->tickets.size();
        for (const auto& ticket : before->tickets) hold(find_held(*ticket), ticket);
        wake(*before);
    }
}

// Those in the queue that share what is held follow it. Whole groups are made anew, so that all of
// their callers wake and find where they wait.
void GroupQueue::hold_queued() {
    bool called = false;  // One to lead, who has not noticed yet.
    std::deque<std::shared_ptr<Group>> groups;
    groups.swap(groups_);
    for (const auto& group : groups) {
        std::vector<std::shared_ptr<Ticket>> stay;
        for (const auto& ticket : group->tickets) {
            if (find_held(*ticket) == held_.end()) stay.push_back(ticket);
        }
        if (stay.size() == group->tickets.size()) {
            groups_.push_back(group);
            continue;
        }
        for (const auto& ticket : group->tickets) {
            if (const auto where = find_held(*ticket); where != held_.end()) hold(where, ticket);
        }
        queued_ -= group->tickets.size() - stay.size();
        group->tickets.clear();
        if (!stay.empty()) {
            groups_.push_back(std::make_shared<Group>());
            for (const auto& ticket : stay) ticket->group_ = groups_.back();
            groups_.back()->tickets = std::move(stay);
        }
        called |= group->turn.is_set();
        group->answered.set();
        group->turn.set();
    }
    if (called) pass_leadership();
}

// -- the lane -----------------------------------------------------------------------------------

void GroupQueue::schedule_look() {
    if (looks_) return;
    look_pause_ = kFirstPause;
    look_again();
}

// After the pause, where anything is held.
void GroupQueue::look_again() {
    looks_ = !held_.empty();
    if (!looks_) return;
    lane_.run_at(std::chrono::steady_clock::now() + look_pause_, [weak = weak_from_this()] {
        if (const auto self = weak.lock()) self->look_at_held();
    });
}

void GroupQueue::take_held(HeldByKey::iterator where, Look& look) {
    Held& held = where->second;
    const std::shared_ptr<Group> group = std::exchange(held.group, make_held_group());
    held.looked_at = true;
    auto& tickets = group->tickets;
    const std::size_t room = std::max<std::size_t>(1, options_.max_batch - look.tickets);
    if (tickets.size() > room) {
        const auto rest = tickets.begin() + static_cast<std::ptrdiff_t>(room);
        held.group->tickets.assign(rest, tickets.end());
        tickets.erase(rest, tickets.end());
        for (const auto& later : held.group->tickets) later->group_ = held.group;
    }
    waits_held_ -= tickets.size();
    for (const auto& ticket : tickets) {
        if (ticket->deadline_.time() > look.deadline.time()) look.deadline = ticket->deadline_;
    }
    group->held = false;
    group->excuses = true;
    look.tickets += tickets.size();
    look.keys.push_back(where->first);
    look.groups.push_back(group);
}

// Looks at all; every other time waits for one that has been held for long, in turn.
GroupQueue::Look GroupQueue::take_held(SteadyTime now) {
    Look look;
    forget_empty();
    auto longest = held_.end();
    std::vector<std::pair<std::uint64_t, std::uint64_t>> in_turn;
    for (auto held = held_.begin(); held != held_.end(); ++held) {
        if (held->second.follows != nullptr && held->second.follows == current_) continue;
        in_turn.emplace_back(held->second.turn, held->first);
        if (now - held->second.since < kWaitsAfter) continue;
        if (longest == held_.end() || held->second.turn < longest->second.turn) longest = held;
    }
    look.waits = longest != held_.end() && !has_waited_;
    has_waited_ = look.waits;
    if (look.waits) {
        take_held(longest, look);
        longest->second.turn = ++turns_;
        return look;
    }
    std::sort(in_turn.begin(), in_turn.end());
    for (const auto& [turn, key] : in_turn) {
        if (look.tickets >= options_.max_batch) break;
        take_held(held_.find(key), look);
    }
    return look;
}

void GroupQueue::look_at_held() {
    Look look;
    {
        const std::lock_guard lock(mutex_);
        look = take_held(std::chrono::steady_clock::now());
        if (look.groups.empty()) return look_again();
        looked_at_ = look.groups;
    }
    GroupWrite write{*this, look.deadline, look.waits};
    if (auto begun = write.begin(); !begun) {
        write.fail(look.groups, begun.error());
    } else {
        write.run(look.groups);  // Until the last of their deadlines: no commit is left open.
    }
    end_look(look);
}

void GroupQueue::end_look(const Look& look) {
    std::vector<TicketAnswer> answers;
    std::vector<std::shared_ptr<Group>> behind;
    {
        const std::lock_guard lock(mutex_);
        std::vector<std::shared_ptr<Ticket>> left;
        std::size_t unwritten = 0;
        HeldByKey known;
        for (std::size_t i = 0; i < look.keys.size(); ++i) {
            const auto still = settle(look.groups[i], answers);
            left.insert(left.end(), still.begin(), still.end());
            unwritten += still.size();
            // Those that have come meanwhile follow.
            const auto held = held_.find(look.keys[i]);
            behind.push_back(held->second.group);
            const auto& came = behind.back()->tickets;
            left.insert(left.end(), came.begin(), came.end());
            waits_held_ -= came.size();
            known.insert(held_.extract(held));
        }
        const bool some_written = unwritten < look.tickets;
        return_left(left, known, answers);
        looked_at_.clear();
        if (!leading_ && !groups_.empty()) {
            leading_ = true;
            pass_leadership();
        }
        look_pause_ = some_written ? kFirstPause : std::min(2 * look_pause_, kLongestPause);
        look_again();
    }
    for (const auto& group : look.groups) wake(*group);
    for (const auto& group : behind) wake(*group);
    answer_in_pool(std::move(answers));
}

}  // namespace hotcount::sql
