#include "table.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace hotcount::loadtest {

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
