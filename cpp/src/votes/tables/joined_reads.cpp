#include "joined_reads.hpp"

#include <algorithm>
#include <atomic>
#include <hotcount/detail/base/event.hpp>
#include <unordered_map>
#include <utility>

namespace hotcount {

// One caller. It lives on that caller's stack while it is in its group.
struct JoinedReads::Waiter {
    std::vector<std::size_t> items{};  // Their places in the group.
    unsigned number{0};
    bool leads{false};  // This caller has the turn.
};

struct JoinedReads::Group {
    std::vector<sql::Id> items{};
    std::unordered_map<sql::Id, std::size_t> places{};
    std::vector<Waiter*> waiters{};
    unsigned joined{0};
    bool sent{false};    // No caller can join it any more.
    bool shared{false};  // Several callers had joined it when it was sent.
    Signal called{};     // The read is over, or one of the callers has the turn.
    std::atomic<bool> over{false};
    Counts counts{std::vector<std::int64_t>{}};
};

JoinedReads::JoinedReads(Read read, std::size_t most_at_once)
    : read_(std::move(read)), most_at_once_(most_at_once) {}

JoinedReads::Counts JoinedReads::read(std::span<const sql::Id> items, Deadline deadline) {
    if (items.size() > kMostItems) return read_(items, deadline);
    std::unique_lock lock(mutex_);
    if (open_ != nullptr && open_->items.size() + items.size() > kMostItems) {
        lock.unlock();
        return read_(items, deadline);
    }
    Waiter self;
    const std::shared_ptr<Group> group = join(items, self);
    take_part(*group, self, deadline, lock);
    // If it was not over in time, or failed for reasons that may be another caller's.
    const bool answered = group->over.load(std::memory_order_acquire);
    if (!answered || (!group->counts && group->shared)) return read_(items, deadline);
    if (!group->counts) return group->counts.error();
    std::vector<std::int64_t> counts;
    counts.reserve(items.size());
    for (const std::size_t item : self.items) counts.push_back((*group->counts)[item]);
    return counts;
}

std::size_t JoinedReads::waiting() {
    const std::lock_guard lock(mutex_);
    return open_ == nullptr ? 0 : open_->waiters.size();
}

std::shared_ptr<JoinedReads::Group> JoinedReads::join(std::span<const sql::Id> items,
                                                      Waiter& self) {
    if (open_ == nullptr) open_ = std::make_shared<Group>();
    self.items.reserve(items.size());
    for (const sql::Id& item : items) {
        const auto [at, fresh] = open_->places.try_emplace(item, open_->items.size());
        if (fresh) open_->items.push_back(item);
        self.items.push_back(at->second);
    }
    self.number = open_->joined++;
    open_->waiters.push_back(&self);
    if (turns_ < most_at_once_) {
        ++turns_;
        self.leads = true;
    }
    return open_;
}

// Returns when the group's read is over, possibly led by this caller, or at its deadline. The mutex
// is released meanwhile.
void JoinedReads::take_part(Group& group, Waiter& self, Deadline deadline,
                            std::unique_lock<std::mutex>& lock) {
    while (!deadline.passed()) {
        if (self.leads) return lead(group, self, deadline, lock);
        const std::uint32_t epoch = group.called.epoch();
        lock.unlock();
        if (group.over.load(std::memory_order_acquire)) return;
        (void)group.called.wait(epoch, deadline, Signal::place(self.number));
        if (group.over.load(std::memory_order_acquire)) return;
        lock.lock();
    }
    leave(group, self);
    lock.unlock();
}

void JoinedReads::lead(Group& group, Waiter& self, Deadline deadline,
                       std::unique_lock<std::mutex>& lock) {
    group.sent = true;
    group.shared = group.waiters.size() > 1;
    open_ = nullptr;
    // A caller that was handed a turn may wake only when the read is over, because one that joined
    // later had a turn too and was faster. So the turn ends here.
    for (Waiter* const waiter : group.waiters) {
        if (std::exchange(waiter->leads, false) && waiter != &self) --turns_;
    }
    lock.unlock();
    group.counts = read_(group.items, deadline);
    group.over.store(true, std::memory_order_release);
    lock.lock();
    pass_turn();
    lock.unlock();
    if (group.shared) group.called.wake();
}

// Gives the turn to a waiting caller, or to the next one that comes.
void JoinedReads::pass_turn() {
    const auto leads = [](const Waiter* waiter) { return waiter->leads; };
    if (open_ == nullptr || open_->waiters.empty() ||
        std::any_of(open_->waiters.begin(), open_->waiters.end(), leads)) {
        --turns_;
        return;
    }
    Waiter* const next = open_->waiters.front();
    next->leads = true;
    open_->called.wake(Signal::place(next->number));
}

void JoinedReads::leave(Group& group, Waiter& self) {
    std::erase(group.waiters, &self);
    if (!group.sent && group.waiters.empty()) open_ = nullptr;
    if (self.leads) pass_turn();
}

}  // namespace hotcount
