// Medians with the least and the most, over rounds. What a difference between them is worth is said by
// `hotcount load compare`, in Python.
//
// Pure functions of their arguments; they may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hotcount::loadtest {

/// A median and the range around it.
struct Spread {
    double median{0};
    double min{0};
    double max{0};
};

/// All zero if there are no values.
Spread spread_of(std::span<const double> values);
/// 0 if there are no values.
double median(std::span<const double> values);

/// How many values the percentile `quantile` (below 1) needs so that one of them is above it. With
/// fewer it is only the largest of them.
std::uint64_t least_values(double quantile);
/// Whether so many values say anything about the percentile: the largest (1) is always one of them.
bool can_tell(std::uint64_t values, double quantile);

/// values[i] / baselines[i]: rounds that ran side by side are compared with each other, so that a
/// machine which slows down for a while slows both. A round without both, or whose baseline is 0,
/// is left out.
std::vector<double> paired_ratios(std::span<const double> values,
                                  std::span<const double> baselines);

}  // namespace hotcount::loadtest
