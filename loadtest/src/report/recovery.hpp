// How long a load took to be as fast as before, after --fault had taken a server away.
//
// Pure functions; they may be called from any thread.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "load/ledger.hpp"
#include "load/settings.hpp"
#include "numbers.hpp"
#include "targets/beside_load.hpp"

namespace hotcount::loadtest {

struct Summary;

/// What the callers saw of one fault. Times after the server was back.
struct Recovery {
    Outage outage{};
    double before_per_s{0};              ///< Successful calls between the last fault and this one.
    std::optional<Duration> first_ok{};  ///< Until the first call succeeded.
    /// Until the rate was kRecovered of the one before, over a tenth of a second or more. None: not by
    /// the end of the load or the next fault, or too few calls succeeded before.
    std::optional<Duration> recovered{};
};

inline constexpr double kRecovered = 0.9;

/// Of each fault of a load.
std::vector<Recovery> recoveries(const Ledger& ledger, const std::vector<Outage>& outages,
                                 const TrialSettings& settings);

/// A list for JSON.
nlohmann::json describe(const std::vector<Recovery>& recoveries);
/// A line for each.
std::string recovery_lines(const std::vector<Recovery>& recoveries);
/// The same for all rounds of a strategy.
std::string recovery_lines(const Summary& summary);

}  // namespace hotcount::loadtest
