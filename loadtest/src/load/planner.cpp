#include "planner.hpp"

#include <algorithm>
#include <chrono>
#include <utility>

namespace hotcount::loadtest {

Planner::Planner(Ledger& ledger, const TrafficSettings& traffic, Schedule schedule,
                 std::int64_t horizon_ns, UnvoteValue unvote)
    : ledger_(ledger),
      workload_(traffic),
      schedule_(std::move(schedule)),
      horizon_ns_(horizon_ns),
      unvote_(unvote) {}

bool Planner::reach(std::uint64_t index) {
    const std::uint64_t planned = planned_.load(std::memory_order_acquire);
    if (index + kChunk < planned) [[likely]]
        return true;
    const SteadyTime from = std::chrono::steady_clock::now();
    const bool reached = plan_to(index);
    spent_ns_.fetch_add(std::chrono::nanoseconds{std::chrono::steady_clock::now() - from}.count(),
                        std::memory_order_relaxed);
    return reached;
}

bool Planner::plan_to(std::uint64_t index) {
    if (index < planned_.load(std::memory_order_acquire)) {
        // Still enough for this worker: plan on unless another one already does.
        std::unique_lock lock(mutex_, std::try_to_lock);
        if (lock && index + kChunk >= planned_.load(std::memory_order_relaxed)) extend();
        return true;
    }
    if (ended_.load(std::memory_order_acquire)) {
        return index < planned_.load(std::memory_order_acquire);
    }
    std::lock_guard lock(mutex_);
    while (index >= planned_.load(std::memory_order_relaxed) &&
           !ended_.load(std::memory_order_relaxed)) {
        extend();
    }
    return index < planned_.load(std::memory_order_relaxed);
}

void Planner::extend() {
    if (ended_.load(std::memory_order_relaxed)) return;
    const std::uint64_t from = planned_.load(std::memory_order_relaxed);
    std::uint64_t until = std::min(from + kChunk, ledger_.capacity());
    bool ended = until == ledger_.capacity();
    full_ = ended;
    if (auto reserved = ledger_.reserve(until); !reserved) {
        error_ = reserved.error();
        until = from;
        ended = true;
    }
    for (std::uint64_t index = from; index < until; ++index) {
        const std::int64_t intended_ns = schedule_.next_ns();
        if (intended_ns >= horizon_ns_) {
            until = index;
            ended = true;
            full_ = false;
            break;
        }
        const Operation operation = workload_.next();
        LedgerRecord& record = ledger_[index];
        record.item = operation.item;
        record.user = operation.user;
        const bool numbered = unvote_ == UnvoteValue::numbered;
        if (operation.kind == OperationKind::vote) {
            record.value = numbered ? static_cast<std::int32_t>(index + 1) : 1;
        } else if (operation.kind == OperationKind::unvote) {
            record.value = numbered ? 0 : static_cast<std::int32_t>(unvote_);
        } else {
            record.value = 0;
        }
        record.kind = operation.kind;
        record.resent = operation.resent;
        record.intended_ns = intended_ns;
        record.store_status(Status::planned);
    }
    ledger_.set_planned(until);
    planned_.store(until, std::memory_order_release);
    // After planned_: who sees the end sees every operation before it.
    if (ended) ended_.store(true, std::memory_order_release);
}

bool Planner::ledger_full() const {
    std::lock_guard lock(mutex_);
    return full_;
}

std::optional<Error> Planner::error() const {
    std::lock_guard lock(mutex_);
    return error_;
}

std::uint64_t Planner::repeated() const {
    std::lock_guard lock(mutex_);
    return workload_.repeated();
}

}  // namespace hotcount::loadtest
