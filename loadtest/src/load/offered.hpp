// Did the generator offer the load it was asked for? If not, the latencies say little.
//
// An open-loop run is valid when at least 99 % of the operations due in its window were sent
// inside the window and the backlog (due, not yet sent) did not keep growing. A pure function of
// the ledger.
#pragma once

#include <cstdint>

#include "ledger.hpp"

namespace hotcount::loadtest {

struct OfferedLoad {
    static constexpr double kLeastShare = 0.99;

    std::uint64_t due{0};   ///< Operations due in the window.
    std::uint64_t sent{0};  ///< Of those, sent before its end.
    double share{1};        ///< sent / due.
    /// Mean number of operations due and not sent, early in the window and at its end.
    double backlog_early{0};
    double backlog_late{0};
    bool growing{false};

    bool carried() const { return share >= kLeastShare && !growing; }
};

/// The window is [from_ns, until_ns) after the start of the run.
OfferedLoad measure_offered(const Ledger& ledger, std::int64_t from_ns, std::int64_t until_ns,
                            std::uint32_t workers);

}  // namespace hotcount::loadtest
