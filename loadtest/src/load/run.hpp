// The load that runs: what run_load() is made of, for runner.cpp alone. Threads send and measure;
// another watches them, and makes the figures at the end.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "planner.hpp"
#include "runner.hpp"

namespace hotcount::loadtest {

// Once the schedule has ended, how long what is late may still be sent: enough for the tail of a
// system that keeps up, too little to hide one that does not.
inline constexpr Duration kGrace = std::chrono::milliseconds{500};
// The longest sleep before a thread looks at the run's state again.
inline constexpr Duration kTick = std::chrono::milliseconds{50};
// Calls in flight share this many of what each thread has one of: a few threads complete them.
inline constexpr std::size_t kStripes = 8;

inline constexpr std::size_t kKinds = static_cast<std::size_t>(OperationKind::read) + 1;
inline constexpr std::size_t kOutcomes = static_cast<std::size_t>(Outcome::unknown) + 1;

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

// One of the calls under way: the next one of its place follows its answer.
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
    // Open loop: the places without a call under way.
    std::mutex free_mutex_;
    std::condition_variable freed_;
    std::vector<Place*> free_places_;
    SteadyTime start_{};
    alignas(64) std::atomic<std::uint64_t> next_{0};
    alignas(64) std::atomic<std::uint32_t> working_{0};
    std::uint64_t sampled_answers_{0};
    std::int64_t sampled_ns_{0};
};

}  // namespace hotcount::loadtest
