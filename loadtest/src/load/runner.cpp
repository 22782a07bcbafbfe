#include "runner.hpp"

#include <fmt/core.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "run.hpp"

namespace hotcount::loadtest {
namespace {

// Threads that start calls of an open loop without waiting for their answers.
constexpr std::uint32_t kStarters = 4;
constexpr Duration kObserve = std::chrono::seconds{1};

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

double process_cpu_s() {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    const auto in_s = [](const timeval& time) {
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
    };
    return in_s(usage.ru_utime) + in_s(usage.ru_stime);
}

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

}  // namespace hotcount::loadtest
