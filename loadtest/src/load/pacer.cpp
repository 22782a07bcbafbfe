#include "pacer.hpp"

#include <sys/prctl.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <ctime>
#include <utility>

#include "planner.hpp"
#include "words.hpp"
#include "workload.hpp"

namespace hotcount::loadtest {

std::string_view to_string(Arrival arrival) {
    return word_of(arrival, {"closed", "uniform", "poisson", "trace"});
}

Duration RateProfile::equivalent(Duration time) const {
    if (constant()) return time;
    Duration round{0};
    double made_ns = 0;
    for (const Step& step : steps) {
        round += step.lasts;
        made_ns += step.factor * static_cast<double>(step.lasts.count());
    }
    made_ns *= static_cast<double>(time / round);
    Duration left = time % round;
    for (const Step& step : steps) {
        const Duration part = std::min(left, step.lasts);
        made_ns += step.factor * static_cast<double>(part.count());
        left -= part;
    }
    return Duration{static_cast<std::int64_t>(made_ns)};
}

Schedule::Schedule(Arrival arrival, double rate_per_s, std::uint64_t seed, RateProfile profile)
    : arrival_(arrival),
      gap_ns_(arrival == Arrival::closed ? 0 : 1e9 / rate_per_s),
      // Apart from the workload's generator, so that the traffic is the same at every rate.
      random_(mix(seed, 1)),
      profile_(std::move(profile)) {
    if (!profile_.constant()) {
        step_ends_ns_ = static_cast<double>(profile_.steps[0].lasts.count());
    }
}

Schedule::Schedule(std::shared_ptr<const Trace> trace)
    : arrival_(Arrival::trace), random_(0), trace_(std::move(trace)) {}

/// Moves to the next time of a Poisson process, `gaps` gaps of the mean rate further. A step with a
/// higher rate has more gaps in the same time.
void Schedule::advance(double gaps) {
    while (!profile_.constant()) {
        const double rate = profile_.steps[step_].factor / gap_ns_;
        const double left = (step_ends_ns_ - at_ns_) * rate;
        if (gaps < left) {
            at_ns_ += gaps / rate;
            return;
        }
        gaps -= left;
        at_ns_ = step_ends_ns_;
        step_ = (step_ + 1) % profile_.steps.size();
        step_ends_ns_ += static_cast<double>(profile_.steps[step_].lasts.count());
    }
    at_ns_ += gap_ns_ * gaps;
}

std::int64_t Schedule::next_ns() {
    switch (arrival_) {
        case Arrival::closed:
            break;
        // From the index, not by adding gaps: rounding does not pile up.
        case Arrival::uniform:
            at_ns_ = gap_ns_ * static_cast<double>(index_++);
            break;
        case Arrival::poisson:
            advance(-std::log1p(-random_.unit()));
            break;
        case Arrival::trace: {
            const auto& lines = trace_->lines();
            return index_ < lines.size() ? lines[index_++].at_ns : INT64_MAX;
        }
    }
    return static_cast<std::int64_t>(at_ns_);
}

void sharpen_timers() { prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL); }

void sleep_until(SteadyTime time) {
    // steady_clock is CLOCK_MONOTONIC; std::this_thread::sleep_until would read the clock first
    // and then sleep for the difference, which a preemption in between makes too long.
    const std::int64_t at_ns =
        std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
    timespec at{};
    at.tv_sec = static_cast<time_t>(at_ns / 1'000'000'000);
    at.tv_nsec = static_cast<long>(at_ns % 1'000'000'000);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, nullptr) == EINTR) {
    }
}

// -- the plan --------------------------------------------------------------------------------------

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
