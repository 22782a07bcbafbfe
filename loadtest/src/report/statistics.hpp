// The few numbers that a handful of rounds can support: a median and the range around it.
//
// Pure functions.
#pragma once

#include <span>
#include <vector>

namespace hotcount::loadtest {

struct Spread {
    double median{0};
    double min{0};
    double max{0};
};

/// All zero where there are no values.
Spread spread_of(std::span<const double> values);

/// values[i] / baselines[i]: rounds that ran side by side are compared with each other, so that a
/// machine which slows down for a while slows both. A round without both, or whose baseline is 0,
/// is left out.
std::vector<double> paired_ratios(std::span<const double> values,
                                  std::span<const double> baselines);

}  // namespace hotcount::loadtest
