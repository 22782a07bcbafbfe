// What a run did interval by interval, from its ledger alone.
//
//   series.csv     one row an interval: answers by kind and outcome, latency, what waits
//   response.hlog  latencies of the answers of each interval, by kind and outcome,
//                  a log of version 1.3 as HdrHistogram's tools read it
#pragma once

#include <cstddef>
#include <filesystem>
#include <hotcount/result.hpp>

#include "load/ledger.hpp"
#include "load/settings.hpp"

namespace hotcount::loadtest {

inline constexpr const char* kSeriesFile = "series.csv";
inline constexpr const char* kResponseFile = "response.hlog";

/// A second, or longer if the run would have more of them than this. The first ends with the
/// warm-up, or whole intervals before it.
inline constexpr std::size_t kMostIntervals = 600;

/// Writes both files of a run that has just ended, on this machine. Latency counts from the time
/// that a call was due; in the closed loop, from the time it was sent. An answer belongs to the
/// interval in which it came; a call without one, to that in which it was sent.
Result<void> write_series(const Ledger& ledger, const TrialSettings& settings,
                          const std::filesystem::path& folder);

}  // namespace hotcount::loadtest
