// The highest rate of an open loop that meets an SLO, strategy by strategy.
//
// Every trial is on tables of its own, settled and audited as any other. A broken contract ends the
// search for its strategy.
#pragma once

#include <cstdint>
#include <hotcount/result.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "load/study_settings.hpp"
#include "rate_search.hpp"
#include "report/fresh_trials.hpp"
#include "report/trial.hpp"

namespace hotcount::loadtest {

inline constexpr const char* kSearchFile = "search.json";

/// Why the trial does not meet the SLO, in words; none: it does. A load that was not carried meets
/// none, and a percentile that has no call above it is not met either: nobody knows it.
std::vector<std::string> why_not(const Slo& slo, const TrialResult& trial);

/// How long a trial at this rate lasts: as `asked`, or up to five times that, until each percentile of
/// the SLO has two calls above it, of staleness two reads. If five times are too short for one, the
/// search ends at that trial.
Duration trial_length(const Slo& slo, const Mix& mix, Duration asked, double rate_per_s);

/// What a search that ends early knows: "1,200 held once".
std::string held_words(const RateSearch& search);

/// The seed of the traffic of a strategy's confirming trial, the first of which is 1: they must not
/// all find the same luck.
std::uint64_t confirming_seed(std::uint64_t seed, std::uint64_t confirmation);

struct RateTrial {
    TrialResult trial{};
    std::vector<std::string> misses{};  ///< As why_not() says; none: it held.
};

/// What one strategy carries.
struct SearchResult {
    std::string strategy{};
    std::vector<RateTrial> trials{};
    double rate_per_s{0};     ///< Held and was confirmed; 0: none.
    double refused_per_s{0};  ///< The lowest rate above that which was refused; 0: none.
    double elapsed_s{0};
    Conclusion conclusion{Conclusion::inconclusive};
    std::vector<std::string> reasons{};  ///< Why it is not `passed`.

    /// Of the trials that confirmed the rate, the one with the highest 99th percentile; null: none.
    const TrialResult* slowest() const;
    /// What the lowest refused rate missed, in the last trial of it.
    std::string limit() const;
};

struct Search {
    Slo slo{};
    std::string started{};
    std::vector<SearchResult> results{};
    Conclusion conclusion{Conclusion::passed};
};

/// An error only if nothing was measured.
Result<Search> run_search(const std::vector<StrategyGroup>& groups, const StudySettings& study,
                          const TrialContext& context);

nlohmann::json search_document(const Search& search, const nlohmann::json& provenance);
std::string search_text(const Search& search);
/// A row of a table for each strategy, under a head.
std::string search_markdown(const Search& search);

}  // namespace hotcount::loadtest
