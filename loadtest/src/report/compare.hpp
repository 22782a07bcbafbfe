// Strategies side by side: the same traffic, in alternating rounds, each on a fresh database.
//
// The order changes from round to round, so that a machine that warms up, or slows down for a
// while, does not favour whoever runs first. Ratios are taken within a round and their median
// reported with the range.
#pragma once

#include <cstdint>
#include <hotcount/result.hpp>
#include <string>
#include <vector>

#include "fresh_trials.hpp"
#include "load/histogram.hpp"
#include "load/settings.hpp"
#include "statistics/statistics.hpp"
#include "trial.hpp"

namespace hotcount::loadtest {

/// One table: several strategies under one load.
struct Part {
    std::string name{};        ///< For folders and labels: "closed", "open", "counters".
    TrialSettings settings{};  ///< But for the strategy.
    std::vector<std::string> strategies{};
    std::string baseline{};
    std::uint32_t rounds{5};
    /// The rate is a default. It falls to half of what the fastest strategy reached in the closed
    /// loop before, if that is less than twice the rate: a slow disk leaves something to see.
    bool rate_may_fall{false};
};

/// All rounds of one strategy. columns.cpp computes from them what a report shows.
struct Summary {
    std::string strategy{};
    std::vector<TrialResult> trials{};  ///< By round.

    Spread writes_per_s{};  ///< Acknowledged votes and un-votes.
    Spread reads_per_s{};
    Spread ratio{};  ///< writes_per_s against the baseline's; of reads if nothing is written.
    Histogram response_ns{};
    Histogram service_ns{};
    Histogram bystander_ns{};
    AuditResult audit{};
    std::uint64_t audited{0};  ///< How many of the trials were.
    Conclusion conclusion{Conclusion::passed};
    std::vector<std::string> reasons{};
    bool overloaded{false};
};

struct PartResult {
    Part part{};
    std::vector<Summary> summaries{};  ///< As the strategies were named.
    Conclusion conclusion{Conclusion::passed};
};

struct Comparison {
    std::string title{};               ///< One line for people.
    std::vector<std::string> notes{};  ///< What was left out, and why.
    std::vector<PartResult> parts{};
    std::string started{};
    Conclusion conclusion{Conclusion::passed};
};

/// The parts that `compare` with these settings has.
std::vector<Part> compare_parts(const Settings& settings);
/// The canonical comparison: votes on SQLite in a closed and an open loop, counters in memory; if
/// the settings have a Redis, counters, limiters and sorted sets on it as well.
std::vector<Part> canonical_parts(const Settings& settings);

/// Which strategy comes first, second, ... in a round: every strategy takes every place.
std::vector<std::size_t> order_of_round(std::uint32_t round, std::size_t strategies);

/// The open-loop rate for a machine on which the fastest strategy reached `closed_per_s`.
double rate_for(double wanted_per_s, double closed_per_s);

/// Works out the figures of the trials gathered, and the part's conclusion: a strategy that could
/// not keep up is a finding, not a failure, as long as another one could.
void summarise(PartResult& result);

/// Runs all parts, each trial on tables of its own. An error only if nothing was measured: a trial
/// that cannot be run later ends the comparison, which is then inconclusive and has what was measured
/// before.
Result<Comparison> run_comparison(const std::vector<Part>& parts, const TrialContext& context);

}  // namespace hotcount::loadtest
