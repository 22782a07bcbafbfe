// What `search`, `sweep` and `scale` vary, and what a search asks for, with their text forms.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <hotcount/result.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "pacer.hpp"

namespace hotcount::loadtest {

/// What a term of an SLO bounds.
enum class SloMetric : std::uint8_t {
    latency,    ///< A percentile of the time from when a call was due to its answer.
    staleness,  ///< A percentile of how long the numbers that reads were told had been wrong.
    errors,     ///< The share of the calls due that failed, or had no answer or were not sent.
    lost,       ///< What the audit found.
    doubled,
    ghost,
};

struct SloTerm {
    SloMetric metric;
    double quantile{0};     ///< Of latency and staleness; 1: the slowest call.
    bool inclusive{false};  ///< The bound itself is allowed: <= and =.
    Duration time{0};       ///< Of latency and staleness.
    double most{0};         ///< Of errors a share, of the others a count.
    std::string text{};     ///< As it was given.
};

struct Slo {
    std::vector<SloTerm> terms{};
    std::string text() const;
};

/// p99<10ms,stale.p99<1s,err<0.1%,lost=0: percentiles p50, p90, p99.9 ... and max with a time, those
/// of staleness with stale. before them, err with a share,
/// lost, double and ghost with a count; < or <=, and = for counts. An error names the term.
Result<Slo> parse_slo(std::string_view text);

/// 500:20000:x1.5 (each 1.5 times the one before), 500:2000:+250, or a list 500,1k,5k; rising, at
/// most kMostPoints of them.
Result<std::vector<double>> parse_rates(std::string_view text);
/// 1,2,4,8: rising, each at most kMostWorkers.
Result<std::vector<std::uint32_t>> parse_worker_counts(std::string_view text);

inline constexpr std::size_t kMostPoints = 100;

struct StudySettings {
    Slo slo{};
    double from_per_s{
        0};  ///< Where a search begins; 0: at a quarter of what a closed loop reaches.
    Duration max_time{std::chrono::minutes{3}};  ///< Of the search for one strategy.
    std::vector<double> rates{};
    std::vector<std::uint32_t> workers{};
    std::uint32_t rounds{0};
    bool markdown{false};
};

}  // namespace hotcount::loadtest
