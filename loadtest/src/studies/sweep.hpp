// Each strategy at each of several rates of an open loop.
#pragma once

#include <hotcount/result.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "load/study_settings.hpp"
#include "report/fresh_trials.hpp"
#include "report/trial.hpp"

namespace hotcount::loadtest {

inline constexpr const char* kSweepFile = "sweep.json";
inline constexpr const char* kSweepSeries = "sweep.csv";

struct SweepResult {
    std::string strategy{};
    std::vector<TrialResult> trials{};   ///< By rate.
    std::vector<std::string> reasons{};  ///< Why there are no more of them.
};

struct Sweep {
    std::string started{};
    std::vector<SweepResult> results{};
    /// `broken` if an audit found it; rates that were not carried are findings.
    Conclusion conclusion{Conclusion::passed};
};

/// An error only if nothing was measured.
Result<Sweep> run_sweep(const std::vector<StrategyGroup>& groups, const StudySettings& study,
                        const TrialContext& context);

nlohmann::json sweep_document(const Sweep& sweep, const nlohmann::json& provenance);
std::string sweep_text(const Sweep& sweep);
/// A line for each strategy and rate: what a chart of p99 against the offered rate needs.
std::string sweep_csv(const Sweep& sweep);

}  // namespace hotcount::loadtest
