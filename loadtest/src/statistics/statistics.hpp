// What a handful of rounds says, and what it does not: medians, intervals, tests of a difference.
//
// Pure functions of their arguments; they may be called from any thread. A resampling draws from the
// seed alone, so the same rounds always have the same interval.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
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

/// A 95 % interval.
struct Interval {
    double low{0};
    double high{0};
    bool contains(double value) const { return low <= value && value <= high; }
    bool operator==(const Interval&) const = default;
};

/// A difference is called when so few of 100 comparisons of a thing with itself would look like it.
inline constexpr double kSignificance = 0.05;
/// Fewer rounds have no 95 % interval of their median: the range of five values misses it in 1 of 16
/// cases. And with fewer the test of pairs cannot reach 5 %, whatever the rounds say.
inline constexpr std::size_t kLeastRounds = 6;
/// Of one interval. Twice as many move its ends by less than a tenth of its width.
inline constexpr std::size_t kResamples = 2000;

/// A figure of rounds, which are named by their indices; one may come several times.
using Statistic = std::function<double(std::span<const std::size_t> rounds)>;

/// The percentile bootstrap: the middle 95 % of the figure over kResamples draws of as many rounds,
/// with replacement. None for fewer than kLeastRounds.
std::optional<Interval> bootstrap(std::size_t rounds, std::uint64_t seed,
                                  const Statistic& statistic);
/// The interval of the median of values.
std::optional<Interval> bootstrap_median(std::span<const double> values, std::uint64_t seed);
/// The interval of median(values) / median(others), which are drawn independently of each other:
/// none if either has fewer than kLeastRounds, or if a draw's divisor is 0.
std::optional<Interval> bootstrap_ratio_of_medians(std::span<const double> values,
                                                   std::span<const double> others,
                                                   std::uint64_t seed);

/// Wilcoxon's signed rank test, two-sided: how likely differences are whose signs are as uneven as
/// these, or more so, if either sign is equally likely. Differences of 0 are left out, equal ones
/// share their ranks. Exact up to 100 differences, then by the normal approximation. 1 if there are
/// none.
double wilcoxon_signed_rank(std::span<const double> differences);

/// The rank sum test of Wilcoxon, Mann and Whitney, two-sided, for values that are not paired. Equal
/// values share their ranks. Exact up to 60 values altogether. 1 if either is empty.
double rank_sum(std::span<const double> values, std::span<const double> others);

/// Holm's adjustment: if each is below 5 % of what it was adjusted to, the chance that any of the
/// differences called is none is below 5 %. In the order of `ps`.
std::vector<double> holm(std::span<const double> ps);

/// How many rounds the test of pairs needs to call a difference in a family of so many tests.
std::size_t least_rounds(std::size_t tests);

/// How one thing relates to another over rounds; 1: not at all.
struct Ratio {
    Spread spread{};
    std::optional<Interval> interval{};
    double p{1};           ///< Of the test.
    double p_adjusted{1};  ///< By Holm, over all tests of its table.
    bool tested{false};    ///< call_differences() has seen it.
    bool called{false};    ///< A difference could be shown.
};

/// Of rounds that ran side by side: the median of the ratios, and the signed rank test of their
/// logarithms.
Ratio paired_ratio(std::span<const double> values, std::span<const double> baselines,
                   std::uint64_t seed);
/// Of rounds that did not: the ratio of the medians, and the rank sum test. `min` and `max` are those
/// that the extremes of both can make.
Ratio unpaired_ratio(std::span<const double> values, std::span<const double> baselines,
                     std::uint64_t seed);

/// Adjusts the tests of one table and calls the differences: p_adjusted is at most kSignificance, the
/// interval does not hold 1, and the median is outside of `noise`, the interval of a thing beside
/// itself, if there is one.
void call_differences(std::span<Ratio* const> table, const std::optional<Interval>& noise);

}  // namespace hotcount::loadtest
