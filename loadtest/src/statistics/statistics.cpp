#include "statistics.hpp"

#include <algorithm>
#include <cmath>
#include <hotcount/detail/base/random.hpp>
#include <numbers>
#include <numeric>

namespace hotcount::loadtest {
namespace {

constexpr std::size_t kMostExactPairs = 100;
constexpr std::size_t kMostExactValues = 60;

double median_of_sorted(std::span<const double> sorted) {
    if (sorted.empty()) return 0;
    const std::size_t middle = sorted.size() / 2;
    return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

/// Sorts `values`.
double take_median(std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    return median_of_sorted(values);
}

void draw(Random& random, std::size_t rounds, std::vector<std::size_t>& drawn) {
    drawn.resize(rounds);
    for (std::size_t& round : drawn) round = random.below(rounds);
}

std::vector<double> taken(std::span<const double> values, std::span<const std::size_t> rounds) {
    std::vector<double> chosen;
    chosen.reserve(rounds.size());
    for (const std::size_t round : rounds) chosen.push_back(values[round]);
    return chosen;
}

/// The middle 95 % of the figures of kResamples draws.
Interval middle_of(std::vector<double>& figures) {
    std::sort(figures.begin(), figures.end());
    const auto tail =
        static_cast<std::size_t>(static_cast<double>(figures.size()) * kSignificance / 2);
    return {figures[tail], figures[figures.size() - 1 - tail]};
}

/// Twice the rank of each value, so that shared ranks are whole numbers, and the sum over the groups
/// of equal values of t^3 - t.
struct Ranks {
    std::vector<std::size_t> doubled;
    double ties{0};
};

Ranks rank(std::span<const double> values) {
    std::vector<std::size_t> order(values.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return values[a] < values[b]; });
    Ranks ranks;
    ranks.doubled.resize(values.size());
    for (std::size_t first = 0; first < order.size();) {
        std::size_t end = first + 1;
        while (end < order.size() && values[order[end]] == values[order[first]]) ++end;
        for (std::size_t place = first; place < end; ++place) {
            ranks.doubled[order[place]] = first + 1 + end;
        }
        const auto equal = static_cast<double>(end - first);
        ranks.ties += equal * equal * equal - equal;
        first = end;
    }
    return ranks;
}

/// P(|Z| >= distance) of a standard normal Z.
double two_sided_normal(double distance) { return std::erfc(distance / std::numbers::sqrt2); }

/// Twice the smaller tail of a distribution over 0, 1, 2 ...; at most 1.
double two_sided(std::span<const double> chances, std::size_t at) {
    const auto middle = static_cast<std::ptrdiff_t>(at);
    const double low = std::accumulate(chances.begin(), chances.begin() + middle + 1, 0.0);
    const double high = std::accumulate(chances.begin() + middle, chances.end(), 0.0);
    return std::min(1.0, 2 * std::min(low, high));
}

/// 0 and less have none: as far below as a double goes.
double logarithm(double ratio) { return std::log(std::max(ratio, 1e-300)); }

}  // namespace

Spread spread_of(std::span<const double> values) {
    if (values.empty()) return {};
    std::vector<double> sorted(values.begin(), values.end());
    const double middle = take_median(sorted);
    return {middle, sorted.front(), sorted.back()};
}

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

double median(std::span<const double> values) {
    std::vector<double> sorted(values.begin(), values.end());
    return take_median(sorted);
}

std::optional<Interval> bootstrap(std::size_t rounds, std::uint64_t seed,
                                  const Statistic& statistic) {
    if (rounds < kLeastRounds) return std::nullopt;
    Random random(seed);
    std::vector<double> figures(kResamples);
    std::vector<std::size_t> drawn;
    for (double& figure : figures) {
        draw(random, rounds, drawn);
        figure = statistic(drawn);
    }
    return middle_of(figures);
}

std::optional<Interval> bootstrap_median(std::span<const double> values, std::uint64_t seed) {
    return bootstrap(values.size(), seed, [&](std::span<const std::size_t> rounds) {
        std::vector<double> chosen = taken(values, rounds);
        return take_median(chosen);
    });
}

std::optional<Interval> bootstrap_ratio_of_medians(std::span<const double> values,
                                                   std::span<const double> others,
                                                   std::uint64_t seed) {
    if (std::min(values.size(), others.size()) < kLeastRounds) return std::nullopt;
    Random random(seed);
    std::vector<double> figures(kResamples);
    std::vector<std::size_t> drawn;
    for (double& figure : figures) {
        draw(random, values.size(), drawn);
        std::vector<double> chosen = taken(values, drawn);
        draw(random, others.size(), drawn);
        std::vector<double> divisors = taken(others, drawn);
        const double divisor = take_median(divisors);
        if (divisor == 0) return std::nullopt;
        figure = take_median(chosen) / divisor;
    }
    return middle_of(figures);
}

double wilcoxon_signed_rank(std::span<const double> differences) {
    std::vector<double> sizes;
    std::vector<bool> positive;
    for (const double difference : differences) {
        if (difference == 0) continue;
        sizes.push_back(std::abs(difference));
        positive.push_back(difference > 0);
    }
    if (sizes.empty()) return 1;
    const Ranks ranks = rank(sizes);
    std::size_t doubled = 0;  // Twice the sum of the ranks of those above 0.
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        if (positive[i]) doubled += ranks.doubled[i];
    }
    const auto n = static_cast<double>(sizes.size());
    if (sizes.size() > kMostExactPairs) {
        const double mean = n * (n + 1) / 4;
        const double variance = n * (n + 1) * (2 * n + 1) / 24 - ranks.ties / 48;
        const double off = std::abs(static_cast<double>(doubled) / 2 - mean);
        return two_sided_normal(std::max(0.0, off - 0.5) / std::sqrt(variance));
    }
    // Each rank is above 0 or not, with the same chance.
    std::vector<double> chances(sizes.size() * (sizes.size() + 1) + 1, 0.0);
    chances[0] = 1;
    std::size_t reached = 0;
    for (const std::size_t each : ranks.doubled) {
        reached += each;
        // From above, so that what a sum takes from below is still without this rank.
        for (std::size_t down = 0; down <= reached; ++down) {
            const std::size_t sum = reached - down;
            const double with = sum >= each ? chances[sum - each] : 0.0;
            chances[sum] = (chances[sum] + with) / 2;
        }
    }
    return two_sided(chances, doubled);
}

double rank_sum(std::span<const double> values, std::span<const double> others) {
    if (values.empty() || others.empty()) return 1;
    std::vector<double> all(values.begin(), values.end());
    all.insert(all.end(), others.begin(), others.end());
    const Ranks ranks = rank(all);
    std::size_t doubled = 0;
    for (std::size_t i = 0; i < values.size(); ++i) doubled += ranks.doubled[i];
    const auto n = static_cast<double>(values.size());
    const auto total = static_cast<double>(all.size());
    if (all.size() > kMostExactValues) {
        const double mean = n * (total + 1) / 2;
        const double variance =
            n * (total - n) / 12 * (total + 1 - ranks.ties / (total * (total - 1)));
        if (variance <= 0) return 1;
        const double off = std::abs(static_cast<double>(doubled) / 2 - mean);
        return two_sided_normal(std::max(0.0, off - 0.5) / std::sqrt(variance));
    }
    // How many ways there are to choose so many of the ranks seen with such a sum.
    const std::size_t most = all.size() * (all.size() + 1);
    std::vector<std::vector<double>> ways(values.size() + 1, std::vector<double>(most + 1, 0.0));
    ways[0][0] = 1;
    for (const std::size_t each : ranks.doubled) {
        for (std::size_t chosen = values.size(); chosen > 0; --chosen) {
            for (std::size_t sum = most; sum >= each; --sum) {
                ways[chosen][sum] += ways[chosen - 1][sum - each];
            }
        }
    }
    std::vector<double>& chances = ways[values.size()];
    const double all_ways = std::accumulate(chances.begin(), chances.end(), 0.0);
    for (double& chance : chances) chance /= all_ways;
    return two_sided(chances, doubled);
}

std::vector<double> holm(std::span<const double> ps) {
    std::vector<std::size_t> order(ps.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return ps[a] < ps[b]; });
    std::vector<double> adjusted(ps.size());
    double largest = 0;
    for (std::size_t place = 0; place < order.size(); ++place) {
        const auto left = static_cast<double>(ps.size() - place);
        largest = std::max(largest, std::min(1.0, left * ps[order[place]]));
        adjusted[order[place]] = largest;
    }
    return adjusted;
}

std::size_t least_rounds(std::size_t tests) {
    std::size_t rounds = kLeastRounds;
    const auto family = static_cast<double>(std::max<std::size_t>(tests, 1));
    while (family * std::ldexp(2.0, -static_cast<int>(rounds)) > kSignificance) ++rounds;
    return rounds;
}

Ratio paired_ratio(std::span<const double> values, std::span<const double> baselines,
                   std::uint64_t seed) {
    const std::vector<double> ratios = paired_ratios(values, baselines);
    std::vector<double> logarithms;
    logarithms.reserve(ratios.size());
    for (const double ratio : ratios) logarithms.push_back(logarithm(ratio));
    Ratio result;
    result.spread = spread_of(ratios);
    result.interval = bootstrap_median(ratios, seed);
    result.p = wilcoxon_signed_rank(logarithms);
    return result;
}

Ratio unpaired_ratio(std::span<const double> values, std::span<const double> baselines,
                     std::uint64_t seed) {
    const Spread of = spread_of(values);
    const Spread to = spread_of(baselines);
    const auto divided = [](double value, double by) { return by > 0 ? value / by : 0.0; };
    Ratio result;
    result.spread = {divided(of.median, to.median), divided(of.min, to.max),
                     divided(of.max, to.min)};
    result.interval = bootstrap_ratio_of_medians(values, baselines, seed);
    result.p = rank_sum(values, baselines);
    return result;
}

void call_differences(std::span<Ratio* const> table, const std::optional<Interval>& noise) {
    std::vector<double> ps;
    ps.reserve(table.size());
    for (const Ratio* ratio : table) ps.push_back(ratio->p);
    const std::vector<double> adjusted = holm(ps);
    for (std::size_t i = 0; i < table.size(); ++i) {
        Ratio& ratio = *table[i];
        ratio.p_adjusted = adjusted[i];
        ratio.tested = true;
        ratio.called = adjusted[i] <= kSignificance && ratio.interval &&
                       !ratio.interval->contains(1) &&
                       !(noise && noise->contains(ratio.spread.median));
    }
}

}  // namespace hotcount::loadtest
