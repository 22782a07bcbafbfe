// Drives the load: many threads, one shared plan, one driver; measures what comes back.
//
//   open loop    a worker takes the next slot, sleeps to its intended time, calls. Headline
//                latency: intended -> done. A slot that no worker served in time is censored: it is
//                counted, and its latency in the headline is the least that it can have had.
//   closed loop  a worker calls again as soon as it was answered. Headline figure: the rate;
//                latencies are of the calls alone and say nothing about a loaded system.
//   in flight    without a thread for each call: at most `in_flight` calls at once. In the closed loop
//                the completion of one starts the next. In the open loop a few threads start them
//                when they are due; one that is due while all are in flight waits for a completion.
//
// The window of measurement begins after the warm-up. An operation belongs to it by its intended
// time (open loop) or by the time of its answer (closed loop). A call of a closed loop that is under way
// when the window ends is in its latency and its errors, not in its rate. All operations stand in the
// ledger.
//
// A failure is no fast answer: a call that failed, had no answer or was never sent counts in the
// percentiles as slower than the time limit of a call.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <vector>

#include "driver.hpp"
#include "histogram.hpp"
#include "ledger.hpp"
#include "pacer.hpp"
#include "planner.hpp"

namespace hotcount::loadtest {

struct LoadSettings {
    Arrival arrival{Arrival::closed};
    double rate_per_s{0};  ///< Open loop only.
    RateProfile profile{};
    std::uint32_t workers{32};
    /// The most calls in flight, driven by completions; 0: workers drive them.
    std::uint32_t in_flight{0};
    Duration warmup{std::chrono::seconds{1}};
    Duration duration{std::chrono::seconds{10}};
    /// Of each call. A call that is not acknowledged counts as slower than this.
    Duration timeout{0};
    TrafficSettings traffic{};
    UnvoteValue unvote{UnvoteValue::set_zero};
};

inline constexpr std::size_t kErrorCodes = static_cast<std::size_t>(ErrorCode::closed) + 1;

/// The bottleneck that limited the rate.
enum class LoadBound : std::uint8_t {
    schedule,   ///< Open loop: the schedule, which was kept.
    workers,    ///< All of them waited for answers, and half of these took less than twice the
                ///< fastest one: more workers may do more.
    in_flight,  ///< All calls in flight waited, as for `workers`: more of them may do more.
    planner,    ///< The workers waited for their operations to be planned.
    generator,  ///< The workers spent more time outside of calls than in them, or woke up late.
    system,     ///< All waited for answers, which took twice as long as the fastest one or longer.
};
std::string_view to_string(LoadBound bound);

/// The workers' time in the window, summed over them; open loop: without the waits for slots.
struct WorkerTime {
    std::int64_t calls_ns{0};
    std::int64_t own_ns{0};       ///< Open loop: outside of calls, planning included.
    std::int64_t planning_ns{0};  ///< In the whole run; closed loop: it counts in calls_ns too.
};

/// Operations answered inside the window; failed and unknown: also those in flight at its end.
struct Tally {
    std::uint64_t votes_ok{0};
    std::uint64_t unvotes_ok{0};
    std::uint64_t reads_ok{0};
    std::uint64_t refused{0};  ///< Writes among the above that were answered with a refusal.
    std::uint64_t failed{0};
    std::uint64_t unknown{0};
    std::array<std::uint64_t, kErrorCodes> errors{};  ///< By ErrorCode.

    std::uint64_t writes_ok() const { return votes_ok + unvotes_ok; }
    std::uint64_t ok() const { return writes_ok() + reads_ok; }
    std::uint64_t answered() const { return ok() + failed + unknown; }
};

/// Whether the generator offered the load that it was asked for. If not, the latencies say little.
///
/// An open-loop run is valid if at least 99 % of the operations due in its window were sent inside
/// the window, and if the backlog (operations due and not yet sent) did not keep growing.
struct OfferedLoad {
    static constexpr double kLeastShare = 0.99;

    std::uint64_t due{0};   ///< Operations due in the window.
    std::uint64_t sent{0};  ///< Due operations that were sent before the window's end.
    double share{1};        ///< sent / due.
    /// Mean number of operations due and not sent, early in the window and at its end.
    double backlog_early{0};
    double backlog_late{0};
    bool growing{false};

    bool carried() const { return share >= kLeastShare && !growing; }
};

/// The answers of one kind of operation with one outcome, with the times that they really took.
struct OutcomeTimes {
    OperationKind kind;
    Outcome outcome;
    Histogram ns{};  ///< Open loop: intended -> done; closed loop: sent -> done.
};

struct LoadResult {
    Tally tally{};
    std::vector<OutcomeTimes> outcomes{};  ///< Outcomes that occurred.
    LoadBound bound{LoadBound::workers};
    WorkerTime time{};
    double window_s{0};           ///< Length of the window; shorter than asked if cut short.
    std::uint64_t scheduled{0};   ///< Open loop: operations due in the window.
    std::uint64_t censored{0};    ///< Scheduled operations that were never sent.
    OfferedLoad offered{};        ///< Open loop.
    Histogram response_ns{};      ///< Open loop: intended -> done.
    Histogram service_ns{};       ///< Sent -> done.
    Histogram send_lag_ns{};      ///< Open loop: intended -> sent.
    Histogram bystander_ns{};     ///< Of another client, if there was one: targets/beside_load.hpp.
    double cpu_s{0};              ///< Processor time of the whole process during the window.
    std::uint64_t operations{0};  ///< Sent in the whole run, warm-up included.
    std::uint64_t repeated{0};    ///< See Workload.
    bool ledger_full{false};      ///< The ledger ended the run, not the time.
    bool interrupted{false};
    std::optional<Error> error{};  ///< Why the run could not go on.

    double per_second(std::uint64_t count) const {
        return window_s > 0 ? static_cast<double>(count) / window_s : 0;
    }
};

/// How the run stands, for progress.
struct LoadSample {
    double elapsed_s;
    double total_s;
    double rate_per_s;     ///< Answers since the last sample.
    std::int64_t p99_ns;   ///< Of the window so far.
    std::uint64_t errors;  ///< failed + unknown so far.
    std::int64_t backlog;  ///< Open loop: about how many are due and not sent.
};
using LoadObserver = std::function<void(const LoadSample&)>;

/// Runs to the end of the duration, or until `interrupt` becomes true. `observe` is called about
/// once a second from the calling thread; it may be empty.
LoadResult run_load(const LoadSettings& settings, Driver& driver, Ledger& ledger,
                    const std::atomic<bool>& interrupt, const LoadObserver& observe = {});

/// Records that the ledger of such a run must hold at most; closed loop: `max_operations`.
std::uint64_t ledger_capacity(const LoadSettings& settings, std::uint64_t max_operations);

/// `service_ns`: of acknowledged calls.
LoadBound find_bound(const LoadSettings& settings, const OfferedLoad& offered,
                     const WorkerTime& time, const Histogram& service_ns);

/// A pure function of the ledger. The window is [from_ns, until_ns) after the start of the run.
OfferedLoad measure_offered(const Ledger& ledger, std::int64_t from_ns, std::int64_t until_ns,
                            std::uint32_t workers);

}  // namespace hotcount::loadtest
