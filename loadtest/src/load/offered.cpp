// Whether the load was offered as asked, and what kept it back: pure functions.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>

#include "runner.hpp"
#include "words.hpp"
#include "workload.hpp"

namespace hotcount::loadtest {
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
    // How many more became due than were sent, per tenth of the window; what was sent before it or
    // due before it counts into the first, so that a backlog of the warm-up is seen.
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
