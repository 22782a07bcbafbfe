// Throughput of a closed loop against the number of callers, and what law it follows: usl.hpp.
//
// Every round has each number of callers once, upwards and downwards in turn. The
// intervals are of the fits of resampled rounds.
#pragma once

#include <cstdint>
#include <hotcount/result.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "load/study_settings.hpp"
#include "report/fresh_trials.hpp"
#include "report/trial.hpp"
#include "statistics/statistics.hpp"
#include "usl.hpp"

namespace hotcount::loadtest {

inline constexpr const char* kScaleFile = "scale.json";
/// Nothing is said of more callers than so many times the most that were measured.
inline constexpr double kExtrapolation = 2;

struct ScaleLaw {
    UslFit fit{};
    std::optional<Interval> sigma{};  ///< None for fewer than kLeastRounds rounds.
    std::optional<Interval> kappa{};
    std::optional<Interval> peak{};  ///< As the two above, and none without a peak.
    /// The number of callers with the highest throughput; none if there is none or it is beyond what
    /// may be said, if the law does not fit, or if some resamples have no peak.
    std::optional<double> peak_callers{};
    /// Why nothing is said of a peak, for people; empty: it is, or the law has none within reach.
    std::string no_peak_because{};
};

/// The law of the medians. None if no law can be fitted: fewer than three numbers of callers, or one that did nothing. A pure
/// function.
std::optional<ScaleLaw> fit_law(const ScaleRounds& rounds, std::uint64_t seed);

struct ScaleResult {
    std::string strategy{};
    std::vector<std::vector<TrialResult>> trials{};  ///< By number of callers, then by round.
    std::optional<ScaleLaw> law{};
    Conclusion conclusion{Conclusion::passed};
    std::vector<std::string> reasons{};
};

struct Scale {
    std::string started{};
    std::vector<std::uint32_t> workers{};
    std::vector<ScaleResult> results{};
    Conclusion conclusion{Conclusion::passed};
};

/// An error only if nothing was measured.
Result<Scale> run_scale(const std::vector<StrategyGroup>& groups, const StudySettings& study,
                        const TrialContext& context);

nlohmann::json scale_document(const Scale& scale, const nlohmann::json& provenance);
std::string scale_text(const Scale& scale);

}  // namespace hotcount::loadtest
