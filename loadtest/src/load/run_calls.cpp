#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "run.hpp"

namespace hotcount::loadtest {
namespace {

// A sleeping worker looks for an interrupt this often.
constexpr Duration kNap = std::chrono::milliseconds{200};

void bump(std::atomic<std::uint64_t>& counter) {
    // Its own thread is the only writer.
    counter.store(counter.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
}

}  // namespace

// Returns the time at which to send. If that is later than give_up_ns_, it is too late.
std::int64_t Run::wait_for_slot(const LedgerRecord& record) {
    std::int64_t now = now_ns();
    while (now < record.intended_ns && !stopped()) {
        const std::int64_t wake_ns = std::min(record.intended_ns, now + kNap.count());
        sleep_until(start_ + std::chrono::nanoseconds{wake_ns});
        now = now_ns();
    }
    return now;
}

void Run::work(Measured& measured) {
    sharpen_timers();
    sleep_until(start_);
    std::int64_t now = now_ns();
    for (;;) {
        if (stopped()) break;
        const std::uint64_t index = next_.fetch_add(1, std::memory_order_relaxed);
        if (!planner_.reach(index)) break;
        LedgerRecord& record = ledger_[index];
        const std::int64_t free_ns = now;
        if (open()) now = wait_for_slot(record);
        if (now >= give_up_ns_ || stopped()) break;

        const Operation operation = send(record, now);
        const Answer answer = driver_.apply(operation);
        finish(record, answer);
        now = record.done_ns;
        account(measured, record, answer, free_ns);
    }
    working_.fetch_sub(1, std::memory_order_release);
}

Operation Run::send(LedgerRecord& record, std::int64_t now) {
    record.sent_ns = now;
    record.store_status(Status::sent);
    return {record.item, record.user, record.kind, record.resent, record.value};
}

void Run::finish(LedgerRecord& record, const Answer& answer) {
    record.done_ns = now_ns();
    record.returned = answer.returned;
    record.now = answer.now;
    record.said = answer.said;
    if (answer.error) record.error = static_cast<std::uint8_t>(*answer.error) + 1;
    record.store_status(answer.outcome == Outcome::ok       ? Status::ok
                        : answer.outcome == Outcome::failed ? Status::failed
                                                            : Status::unknown);
}

// Starts the place's next operation. If its answer comes before start() returns, the loop here goes
// on; otherwise the completion does. `handed_on` tells which of the two came second.
void Run::go_on(Place& place) {
    do {
        const std::int64_t now = now_ns();
        const bool over = now >= give_up_ns_ || stopped();
        const std::uint64_t index = over ? 0 : next_.fetch_add(1, std::memory_order_relaxed);
        if (over || !planner_.reach(index)) {
            working_.fetch_sub(1, std::memory_order_release);
            return;
        }
        place.record = &ledger_[index];
        place.handed_on.store(false, std::memory_order_relaxed);
        driver_.start(send(*place.record, now), [this, &place](const Answer& answer) {
            finish(*place.record, answer);
            {
                std::lock_guard lock(place.measured->mutex);
                account(*place.measured, *place.record, answer, place.record->sent_ns);
            }
            if (place.handed_on.exchange(true)) go_on(place);
        });
    } while (place.handed_on.exchange(true));
}

/// Null: no call ended before it is too late to send one.
Place* Run::take_place() {
    std::unique_lock lock(free_mutex_);
    while (free_places_.empty()) {
        if (stopped() || now_ns() >= give_up_ns_) return nullptr;
        freed_.wait_for(lock, kTick);
    }
    Place* const place = free_places_.back();
    free_places_.pop_back();
    return place;
}

void Run::give_back(Place& place) {
    {
        std::lock_guard lock(free_mutex_);
        free_places_.push_back(&place);
        freed_.notify_one();
    }
    // The last use of this object: the run may be over.
    working_.fetch_sub(1, std::memory_order_release);
}

// A thread of the open loop by completions.
void Run::start_on_time() {
    sharpen_timers();
    sleep_until(start_);
    while (!stopped()) {
        const std::uint64_t index = next_.fetch_add(1, std::memory_order_relaxed);
        if (!planner_.reach(index)) break;
        LedgerRecord& record = ledger_[index];
        if (wait_for_slot(record) >= give_up_ns_ || stopped()) break;
        Place* const place = take_place();
        if (place == nullptr) break;
        working_.fetch_add(1, std::memory_order_relaxed);
        const std::int64_t now = now_ns();
        if (now >= give_up_ns_) {
            give_back(*place);
            break;
        }
        place->record = &record;
        driver_.start(send(record, now), [this, place](const Answer& answer) {
            finish(*place->record, answer);
            {
                std::lock_guard lock(place->measured->mutex);
                account(*place->measured, *place->record, answer, place->record->sent_ns);
            }
            give_back(*place);
        });
    }
    working_.fetch_sub(1, std::memory_order_release);
}

/// What is not acknowledged has no time that could be compared: it waits longer than the time limit.
std::int64_t Run::counted(Outcome outcome, std::int64_t ns) const {
    return outcome == Outcome::ok ? ns : std::max(ns, settings_.timeout.count() + 1);
}

/// `free_ns`: when the worker had done with the operation before.
void Run::account(Measured& measured, const LedgerRecord& record, const Answer& answer,
                  std::int64_t free_ns) {
    ++measured.operations;
    bump(measured.answers);
    if (answer.outcome != Outcome::ok) bump(measured.errors);
    const std::int64_t belongs_ns = open() ? record.intended_ns : record.done_ns;
    // A closed loop's rate has the answers that came in the window. The calls that were under way at its
    // end count in the latency and among the errors all the same: of a server that stops answering in
    // the window they are all that its callers see.
    const bool cut = !open() && record.sent_ns < until_ns_ && belongs_ns >= until_ns_;
    if (belongs_ns < from_ns_ || (belongs_ns >= until_ns_ && !cut)) return;

    Tally& tally = measured.tally;
    if (answer.error) ++tally.errors[static_cast<std::size_t>(*answer.error)];
    if (answer.outcome == Outcome::failed) {
        ++tally.failed;
    } else if (answer.outcome == Outcome::unknown) {
        ++tally.unknown;
    } else if (cut) {
        // Acknowledged after the window.
    } else if (record.kind == OperationKind::vote) {
        ++tally.votes_ok;
    } else if (record.kind == OperationKind::unvote) {
        ++tally.unvotes_ok;
    } else {
        ++tally.reads_ok;
    }
    if (answer.refused && !cut && record.kind != OperationKind::read) ++tally.refused;
    const std::int64_t service_ns = record.done_ns - record.sent_ns;
    const std::int64_t response_ns = record.done_ns - record.intended_ns;
    auto& times = measured.outcomes[static_cast<std::size_t>(record.kind) * kOutcomes +
                                    static_cast<std::size_t>(answer.outcome)];
    if (!times) times.emplace();
    times->record(open() ? response_ns : service_ns);
    const bool counts = record.kind != OperationKind::read || settings_.traffic.mix.vote == 0;
    if (counts && answer.outcome == Outcome::ok) measured.acknowledged_ns.record(service_ns);
    measured.service_ns.record(counted(answer.outcome, service_ns));
    measured.time.calls_ns += cut ? until_ns_ - std::max(record.sent_ns, from_ns_) : service_ns;
    if (!open()) return;
    measured.time.own_ns += record.sent_ns - std::max(record.intended_ns, free_ns);
    measured.response_ns.record(counted(answer.outcome, response_ns));
    measured.send_lag_ns.record(record.sent_ns - record.intended_ns);
}

}  // namespace hotcount::loadtest
