#include "numbers.hpp"

#include <fmt/core.h>
#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

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

Table::Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void Table::add(std::vector<std::string> row) {
    assert(row.size() == rows_[0].size());
    rows_.push_back(std::move(row));
}

std::string Table::str() const {
    std::vector<std::size_t> widths(rows_[0].size(), 0);
    for (const auto& row : rows_) {
        for (std::size_t column = 0; column < row.size(); ++column) {
            widths[column] = std::max(widths[column], row[column].size());
        }
    }
    std::string text;
    for (const auto& row : rows_) {
        std::string line = fmt::format("{:<{}}", row[0], widths[0]);
        for (std::size_t column = 1; column < row.size(); ++column) {
            line += fmt::format("  {:>{}}", row[column], widths[column]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
    }
    return text;
}

std::string grouped(double value) {
    const std::string digits = fmt::format("{}", std::llround(std::abs(value)));
    std::string text;
    for (std::size_t at = 0; at < digits.size(); ++at) {
        if (at > 0 && (digits.size() - at) % 3 == 0) text += ',';
        text += digits[at];
    }
    return value <= -0.5 ? fmt::format("-{}", text) : text;
}

std::string three_digits(double value) {
    const double size = std::abs(value);
    if (size == 0) return "0";
    const auto magnitude_of = [](double number) {
        return static_cast<int>(std::floor(std::log10(number)));
    };
    const double step = std::pow(10, magnitude_of(size) - 2);
    const double rounded = std::round(value / step) * step;
    // Rounding may carry into another digit: 0.9996 is 1.00. The margin is for its last bit.
    const int magnitude = magnitude_of(std::abs(rounded) * (1 + 1e-12));
    if (magnitude >= 2) return grouped(rounded);
    return fmt::format("{:.{}f}", rounded, std::min(2 - magnitude, 9));
}

}  // namespace hotcount::loadtest
