#include "offered.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

namespace hotcount::loadtest {
namespace {

constexpr std::size_t kTenths = 10;

double mean_of(const std::array<double, kTenths>& values, std::size_t first, std::size_t last) {
    double sum = 0;
    for (std::size_t index = first; index <= last; ++index) sum += values[index];
    return sum / static_cast<double>(last - first + 1);
}

}  // namespace

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
