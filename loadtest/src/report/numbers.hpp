// Numbers of several rounds as medians with the least and the most, and numbers as text in columns. What a
// difference between medians is worth is said by `hotcount load compare`, in Python.
//
// Pure functions of their arguments; they may be called from any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
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
/// Whether a percentile of this many `values` means anything; the largest (1) always does.
bool can_tell(std::uint64_t values, double quantile);

/// values[i] / baselines[i]: rounds that ran side by side are compared with each other, so that a
/// machine which slows down for a while slows both. A round without both, or whose baseline is 0,
/// is left out.
std::vector<double> paired_ratios(std::span<const double> values,
                                  std::span<const double> baselines);

// Text in columns: the first one to the left, figures to the right.

class Table {
  public:
    explicit Table(std::vector<std::string> header);

    /// As many cells as the header has.
    void add(std::vector<std::string> row);
    /// Lines that end with a newline each; no trailing spaces.
    std::string str() const;

  private:
    std::vector<std::vector<std::string>> rows_;
};

/// 1234567 as "1,234,567", rounded to a whole number.
std::string grouped(double value);
inline std::string whole(std::uint64_t count) { return grouped(static_cast<double>(count)); }
/// Three significant digits, never as an exponent: 0.0123, 1.23, 123, 12,300.
std::string three_digits(double value);

inline double in_us(std::int64_t ns) { return static_cast<double>(ns) * 1e-3; }

}  // namespace hotcount::loadtest
