#include "spread.hpp"

#include <algorithm>
#include <cmath>

namespace hotcount::loadtest {

Spread spread_of(std::span<const double> values) {
    if (values.empty()) return {};
    std::vector<double> sorted(values.begin(), values.end());
    std::sort(sorted.begin(), sorted.end());
    const std::size_t middle = sorted.size() / 2;
    const double median =
        sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
    return {median, sorted.front(), sorted.back()};
}

double median(std::span<const double> values) { return spread_of(values).median; }

std::uint64_t least_values(double quantile) {
    // 1 - 0.9999 is a little less than 0.0001.
    constexpr double kRounding = 1e-7;
    return static_cast<std::uint64_t>(std::ceil((1 - kRounding) / (1 - quantile)));
}

bool can_tell(std::uint64_t values, double quantile) {
    return quantile >= 1 || values >= least_values(quantile);
}

std::vector<double> paired_ratios(std::span<const double> values,
                                  std::span<const double> baselines) {
    std::vector<double> ratios;
    const std::size_t pairs = std::min(values.size(), baselines.size());
    ratios.reserve(pairs);
    for (std::size_t round = 0; round < pairs; ++round) {
        if (baselines[round] > 0) ratios.push_back(values[round] / baselines[round]);
    }
    return ratios;
}

}  // namespace hotcount::loadtest
