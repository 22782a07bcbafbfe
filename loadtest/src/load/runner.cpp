// The load that runs: threads send and measure; another watches them, and makes the figures at the end.
#include "runner.hpp"

#include <fmt/core.h>

#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "planner.hpp"
#include "words.hpp"

namespace hotcount::loadtest {
namespace {

// Threads that start calls of an open loop without waiting for their answers.
constexpr std::uint32_t kStarters = 4;
constexpr Duration kObserve = std::chrono::seconds{1};
// Once the schedule has ended, how long what is late may still be sent: enough for the tail of a
// system that keeps up, too little to hide one that does not.
constexpr Duration kGrace = std::chrono::milliseconds{500};
// The longest sleep before a thread looks at the run's state again.
constexpr Duration kTick = std::chrono::milliseconds{50};
// Calls in flight share this many of what each thread has one of: a few threads complete them.
constexpr std::size_t kStripes = 8;

constexpr std::size_t kKinds = static_cast<std::size_t>(OperationKind::read) + 1;
constexpr std::size_t kOutcomes = static_cast<std::size_t>(Outcome::unknown) + 1;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

double process_cpu_s() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto in_s = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return in_s(usage.ru_utime) + in_s(usage.ru_stime);
}

// The measurements of one thread. Aligned, so that neighbours do not share a cache line.
struct alignas(64) Measured {
    Tally tally;
    Histogram response_ns;
    Histogram service_ns;
    Histogram send_lag_ns;
    Histogram acknowledged_ns;  // Sent -> done; of reads only if nothing is written.
    std::array<std::optional<Histogram>, kKinds * kOutcomes> outcomes;  // Most stay empty.
    WorkerTime time;
    std::atomic<std::uint64_t> answers{0};  // Also during the warm-up; for progress.
    std::atomic<std::uint64_t> errors{0};
    std::uint64_t operations{0};
    std::mutex mutex{};  // For completions, which share these.
};

// One of the calls in flight: its answer starts the next call of its place.
struct Place {
    Measured* measured{nullptr};
    LedgerRecord* record{nullptr};
    std::atomic<bool> handed_on{false};
};

class Run {
  public:
    Run(const LoadSettings& settings, Driver& driver, Ledger& ledger,
        const std::atomic<bool>& interrupt)
        : settings_(settings),
          driver_(driver),
          ledger_(ledger),
          interrupt_(interrupt),
          from_ns_(settings.warmup.count()),
          until_ns_(from_ns_ + settings.duration.count()),
          give_up_ns_(until_ns_ + (open() ? kGrace.count() : 0)),
          planner_(ledger, settings.traffic,
                   settings.traffic.trace ? Schedule(settings.traffic.trace)
                                          : Schedule(settings.arrival, settings.rate_per_s,
                                                     settings.traffic.seed, settings.profile),
                   open() ? until_ns_ : INT64_MAX, settings.unvote),
          measured_(settings.in_flight > 0 ? kStripes : settings.workers),
          places_(settings.in_flight) {}

    LoadResult go(const LoadObserver& observe);

  private:
    bool open() const { return settings_.arrival != Arrival::closed; }
    bool stopped() const {
        return interrupt_.load(std::memory_order_relaxed) || stop_.load(std::memory_order_relaxed);
    }
    std::int64_t now_ns() const {
        return std::chrono::duration_cast<std::chrono::nanoseconds>(
                   std::chrono::steady_clock::now() - start_)
            .count();
    }
    void start_workers(std::vector<std::thread>& threads, LoadResult& result);
    void work(Measured& measured);
    void go_on(Place& place);
    void start_on_time();
    Place* take_place();
    void give_back(Place& place);
    Operation send(LedgerRecord& record, std::int64_t now);
    void finish(LedgerRecord& record, const Answer& answer);
    std::int64_t wait_for_slot(const LedgerRecord& record);
    void account(Measured& measured, const LedgerRecord& record, const Answer& answer,
                 std::int64_t free_ns);
    std::int64_t counted(Outcome outcome, std::int64_t ns) const;
    LoadSample sample(std::int64_t at_ns);
    void watch(const LoadObserver& observe, LoadResult& result);
    void gather(LoadResult& result, std::int64_t ended_ns, bool stopped);

    const LoadSettings& settings_;
    Driver& driver_;
    Ledger& ledger_;
    const std::atomic<bool>& interrupt_;
    std::atomic<bool> stop_{false};
    const std::int64_t from_ns_;
    const std::int64_t until_ns_;
    const std::int64_t give_up_ns_;
    Planner planner_;
    std::vector<Measured> measured_;
    std::vector<Place> places_;
    // Open loop: the places without a call in flight.
    std::mutex free_mutex_;
    std::condition_variable freed_;
    std::vector<Place*> free_places_;
    SteadyTime start_{};
    alignas(64) std::atomic<std::uint64_t> next_{0};
    alignas(64) std::atomic<std::uint32_t> working_{0};
    std::uint64_t sampled_answers_{0};
    std::int64_t sampled_ns_{0};
};

}  // namespace

LoadSample Run::sample(std::int64_t at_ns) {
    Histogram merged;
    std::uint64_t answers = 0;
    std::uint64_t errors = 0;
    for (const Measured& measured : measured_) {
        merged.merge(open() ? measured.response_ns : measured.service_ns);
        answers += measured.answers.load(std::memory_order_relaxed);
        errors += measured.errors.load(std::memory_order_relaxed);
    }
    const double since_s = static_cast<double>(at_ns - sampled_ns_) * 1e-9;
    LoadSample sample{};
    sample.elapsed_s = static_cast<double>(at_ns) * 1e-9;
    sample.total_s = static_cast<double>(until_ns_) * 1e-9;
    sample.rate_per_s = since_s > 0 ? static_cast<double>(answers - sampled_answers_) / since_s : 0;
    sample.p99_ns = merged.value_at(0.99);
    sample.errors = errors;
    if (open()) {
        const double due =
            settings_.rate_per_s * seconds(settings_.profile.equivalent(Duration{at_ns}));
        const auto answered = static_cast<double>(answers);
        sample.backlog = std::max<std::int64_t>(
            0, static_cast<std::int64_t>(due - answered) - settings_.workers);
    }
    sampled_answers_ = answers;
    sampled_ns_ = at_ns;
    return sample;
}

// Runs on the calling thread while the workers work.
void Run::watch(const LoadObserver& observe, LoadResult& result) {
    double cpu_from_s = process_cpu_s();
    bool window_open = false;
    bool window_over = false;
    std::int64_t observed_ns = 0;
    std::int64_t now = now_ns();
    while (working_.load(std::memory_order_acquire) > 0) {
        std::int64_t wake_ns = std::max<std::int64_t>(now, 0) + kTick.count();
        // The edges of the window are ticks of their own.
        if (!window_open) wake_ns = std::min(wake_ns, from_ns_);
        if (!window_over) wake_ns = std::min(wake_ns, until_ns_);
        sleep_until(start_ + std::chrono::nanoseconds{wake_ns});
        now = now_ns();
        if (!result.error) {
            result.error = driver_.broken();
            if (result.error) stop_.store(true);
        }
        if (!window_open && now >= from_ns_) {
            window_open = true;
            cpu_from_s = process_cpu_s();
        }
        if (window_open && !window_over) result.cpu_s = process_cpu_s() - cpu_from_s;
        window_over = now >= until_ns_;
        if (observe && now - observed_ns >= kObserve.count() && !window_over) {
            observed_ns = now;
            observe(sample(now));
        }
    }
}

/// `ended_ns`: nothing was sent later. `stopped`: what was due then is not.
void Run::gather(LoadResult& result, std::int64_t ended_ns, bool stopped) {
    std::int64_t last_done_ns = 0;
    Histogram acknowledged_ns;
    WorkerTime& time = result.time;
    std::array<std::optional<Histogram>, kKinds * kOutcomes> outcomes;
    for (const Measured& measured : measured_) {
        acknowledged_ns.merge(measured.acknowledged_ns);
        time.calls_ns += measured.time.calls_ns;
        time.own_ns += measured.time.own_ns;
        for (std::size_t index = 0; index < outcomes.size(); ++index) {
            if (!measured.outcomes[index]) continue;
            if (!outcomes[index]) outcomes[index].emplace();
            outcomes[index]->merge(*measured.outcomes[index]);
        }
        result.operations += measured.operations;
        result.response_ns.merge(measured.response_ns);
        result.service_ns.merge(measured.service_ns);
        result.send_lag_ns.merge(measured.send_lag_ns);
        Tally& sum = result.tally;
        const Tally& part = measured.tally;
        sum.votes_ok += part.votes_ok;
        sum.unvotes_ok += part.unvotes_ok;
        sum.reads_ok += part.reads_ok;
        sum.refused += part.refused;
        sum.failed += part.failed;
        sum.unknown += part.unknown;
        for (std::size_t code = 0; code < kErrorCodes; ++code) {
            sum.errors[code] += part.errors[code];
        }
    }
    // Claimed but never sent records stay `planned`: that is what censored means.
    const std::int64_t gave_up_ns = std::min(ended_ns, give_up_ns_);
    const std::uint64_t planned = ledger_.planned();
    for (std::uint64_t index = 0; open() && index < planned; ++index) {
        const LedgerRecord& record = ledger_[index];
        if (record.intended_ns < from_ns_ || record.intended_ns >= until_ns_) continue;
        if (stopped && record.intended_ns >= gave_up_ns) break;
        const Status status = record.load_status();
        ++result.scheduled;
        if (status != Status::planned) continue;
        ++result.censored;
        result.response_ns.record(counted(Outcome::failed, gave_up_ns - record.intended_ns));
    }
    const bool cut_short = stopped || result.ledger_full || result.error;
    for (std::uint64_t index = 0; cut_short && index < planned; ++index) {
        last_done_ns = std::max(last_done_ns, ledger_[index].done_ns);
    }
    const std::int64_t end_ns = cut_short ? std::min(until_ns_, last_done_ns) : until_ns_;
    result.window_s = static_cast<double>(std::max<std::int64_t>(0, end_ns - from_ns_)) * 1e-9;
    if (open()) result.offered = measure_offered(ledger_, from_ns_, end_ns, settings_.workers);
    for (std::size_t index = 0; index < outcomes.size(); ++index) {
        if (!outcomes[index]) continue;
        result.outcomes.push_back({static_cast<OperationKind>(index / kOutcomes),
                                   static_cast<Outcome>(index % kOutcomes),
                                   std::move(*outcomes[index])});
    }
    result.bound = find_bound(settings_, result.offered, time, acknowledged_ns);
}

LoadResult Run::go(const LoadObserver& observe) {
    LoadResult result;
    // All workers are asleep, waiting for the start, when it comes.
    start_ = std::chrono::steady_clock::now() + std::chrono::milliseconds{5} +
             std::chrono::microseconds{50} * settings_.workers;
    ledger_.set_started_ns(
        std::chrono::duration_cast<std::chrono::nanoseconds>(start_.time_since_epoch()).count());
    planner_.reach(0);
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i < places_.size(); ++i) {
        places_[i].measured = &measured_[i % measured_.size()];
        if (open()) free_places_.push_back(&places_[i]);
    }
    if (places_.empty()) {
        start_workers(threads, result);
    } else if (open()) {
        working_.store(kStarters);
        for (std::uint32_t i = 0; i < kStarters; ++i) {
            threads.emplace_back([this] { start_on_time(); });
        }
    } else {
        working_.store(settings_.in_flight);
        threads.emplace_back([this] {
            sleep_until(start_);
            for (Place& place : places_) go_on(place);
        });
    }
    watch(observe, result);
    for (std::thread& thread : threads) thread.join();
    result.interrupted = interrupt_.load(std::memory_order_relaxed);
    result.ledger_full = planner_.ledger_full();
    if (!result.error) result.error = planner_.error();
    // Slots that no worker came to are due all the same.
    if (open() && !result.interrupted) planner_.reach(ledger_.capacity());
    result.repeated = planner_.repeated();
    result.time.planning_ns = planner_.spent_ns();
    gather(result, now_ns(), result.interrupted);
    return result;
}

void Run::start_workers(std::vector<std::thread>& threads, LoadResult& result) {
    working_.store(settings_.workers);
    threads.reserve(settings_.workers);
    for (Measured& measured : measured_) {
        try {
            threads.emplace_back([this, &measured] { work(measured); });
        } catch (const std::system_error& refused) {
            working_.fetch_sub(static_cast<std::uint32_t>(measured_.size() - threads.size()));
            stop_.store(true);
            result.error = make_error(
                ErrorCode::capacity, fmt::format("only {} of {} threads could be started: {}",
                                                 threads.size(), measured_.size(), refused.what()));
            break;
        }
    }
}

LoadResult run_load(const LoadSettings& settings, Driver& driver, Ledger& ledger,
                    const std::atomic<bool>& interrupt, const LoadObserver& observe) {
    return Run(settings, driver, ledger, interrupt).go(observe);
}

// -- the threads that send, and what they measure --------------------------------------------------

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

/// A call that is not acknowledged counts as slower than the time limit.
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

// -- whether the load was offered as asked, and what kept it back ----------------------------------

namespace {

constexpr std::size_t kTenths = 10;

double mean_of(const std::array<double, kTenths>& values, std::size_t first, std::size_t last) {
    double sum = 0;
    for (std::size_t index = first; index <= last; ++index) sum += values[index];
    return sum / static_cast<double>(last - first + 1);
}

}  // namespace

std::string_view to_string(LoadBound bound) {
    return word_of(bound, {"schedule", "workers", "in_flight", "planner", "generator", "system"});
}

LoadBound find_bound(const LoadSettings& settings, const OfferedLoad& offered,
                     const WorkerTime& time, const Histogram& service_ns) {
    const bool open = settings.arrival != Arrival::closed;
    if (open && offered.carried()) return LoadBound::schedule;
    const std::int64_t own_ns = open ? time.own_ns : time.planning_ns;
    const std::int64_t calls_ns = open ? time.calls_ns : time.calls_ns - time.planning_ns;
    if (own_ns > calls_ns) {
        return 2 * time.planning_ns > own_ns ? LoadBound::planner : LoadBound::generator;
    }
    if (service_ns.value_at(0.5) >= 2 * service_ns.min()) return LoadBound::system;
    return settings.in_flight > 0 ? LoadBound::in_flight : LoadBound::workers;
}

std::uint64_t ledger_capacity(const LoadSettings& settings, std::uint64_t max_operations) {
    if (settings.arrival == Arrival::closed) return max_operations;
    // One more, so that the trace ends the run and not the ledger.
    if (settings.traffic.trace) return settings.traffic.trace->lines().size() + 1;
    const double mean =
        settings.rate_per_s * std::chrono::duration<double>(
                                  settings.profile.equivalent(settings.warmup + settings.duration))
                                  .count();
    // A Poisson count exceeds its mean by six deviations once in 10^9 runs.
    const double most = mean + 6 * std::sqrt(mean) + 64;
    return std::min(max_operations, static_cast<std::uint64_t>(most));
}

OfferedLoad measure_offered(const Ledger& ledger, std::int64_t from_ns, std::int64_t until_ns,
                            std::uint32_t workers) {
    OfferedLoad load;
    if (until_ns <= from_ns) return load;
    // The operations that became due, less those that were sent, per tenth of the window. The first
    // tenth includes all operations before the window, so that a backlog of the warm-up is seen.
    std::array<double, kTenths> change{};
    const double tenth_ns = static_cast<double>(until_ns - from_ns) / kTenths;
    const auto tenth_of = [&](std::int64_t at_ns) {
        const double tenth =
            static_cast<double>(std::max(at_ns - from_ns, std::int64_t{0})) / tenth_ns;
        return std::min(static_cast<std::size_t>(tenth), kTenths - 1);
    };
    const std::uint64_t planned = ledger.planned();
    for (std::uint64_t index = 0; index < planned; ++index) {
        const LedgerRecord& record = ledger[index];
        if (record.intended_ns >= until_ns) break;  // The schedule is in order.
        const bool was_sent = record.load_status() >= Status::sent && record.sent_ns < until_ns;
        change[tenth_of(record.intended_ns)] += 1;
        if (was_sent) change[tenth_of(record.sent_ns)] -= 1;
        if (record.intended_ns < from_ns) continue;
        ++load.due;
        if (was_sent) ++load.sent;
    }
    if (load.due == 0) return load;
    load.share = static_cast<double>(load.sent) / static_cast<double>(load.due);
    std::array<double, kTenths> backlog{};
    double running = 0;
    for (std::size_t tenth = 0; tenth < kTenths; ++tenth) {
        running += change[tenth];
        backlog[tenth] = running;
    }
    load.backlog_early = mean_of(backlog, 1, 3);
    load.backlog_late = mean_of(backlog, 7, 9);
    // Half a percent of the window's operations is well above what a burst or one slow fsync
    // leaves for an instant, and still half of what fails the share.
    const double tolerated =
        std::max(static_cast<double>(workers), 0.005 * static_cast<double>(load.due));
    load.growing = load.backlog_late - load.backlog_early > tolerated;
    return load;
}

}  // namespace hotcount::loadtest
