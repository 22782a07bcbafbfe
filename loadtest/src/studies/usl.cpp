#include "usl.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <set>
#include <vector>

namespace hotcount::loadtest {
namespace {

// The errors are those of the logarithms: twice as much and half as much weigh the same. A measured
// rate divided by the law's would be 0 at least, whatever the law is, and could be any number above 1:
// its least squares follow the fastest points.
//
//   e = log(X / n) + log(1 + sigma (n - 1) + kappa n (n - 1)) - log lambda
//
// log lambda is the mean of the first two terms, so two members are left to look for.
using Pair = std::array<double, 2>;  // sigma, kappa

constexpr double kMostSigma = 1;
constexpr int kMostSteps = 200;

/// What sigma and kappa are multiplied with.
Pair factors_of(const ScalePoint& point) {
    return {point.callers - 1, point.callers * (point.callers - 1)};
}

struct Errors {
    double log_lambda{0};
    double squared{0};
    Pair slope{};                 ///< Half of what the squared error changes by, along each member.
    std::array<Pair, 2> curve{};  ///< Its second derivative, near enough.
};

Errors errors_of(std::span<const ScalePoint> points, const Pair& x) {
    std::vector<double> logs;
    std::vector<Pair> slopes;
    double log_sum = 0;
    Pair slope_sum{};
    for (const ScalePoint& point : points) {
        const Pair factors = factors_of(point);
        const double wait = 1 + x[0] * factors[0] + x[1] * factors[1];
        logs.push_back(std::log(point.per_s / point.callers * wait));
        slopes.push_back({factors[0] / wait, factors[1] / wait});
        log_sum += logs.back();
        for (std::size_t i = 0; i < 2; ++i) slope_sum[i] += slopes.back()[i];
    }
    const auto count = static_cast<double>(points.size());
    Errors errors;
    errors.log_lambda = log_sum / count;
    for (std::size_t point = 0; point < points.size(); ++point) {
        const double error = logs[point] - errors.log_lambda;
        errors.squared += error * error;
        for (std::size_t i = 0; i < 2; ++i) {
            const double along = slopes[point][i] - slope_sum[i] / count;
            errors.slope[i] += error * along;
            for (std::size_t j = 0; j < 2; ++j) {
                errors.curve[i][j] += along * (slopes[point][j] - slope_sum[j] / count);
            }
        }
    }
    return errors;
}

/// At a bound, and better beyond it.
bool is_held(double value, double slope, double most) {
    return (value <= 0 && slope >= 0) || (value >= most && slope <= 0);
}

/// One step of Levenberg and Marquardt, within the bounds.
Pair stepped(const Pair& x, const Errors& errors, double damping) {
    constexpr Pair kMost = {kMostSigma, std::numeric_limits<double>::infinity()};
    std::array<Pair, 2> curve = errors.curve;
    Pair slope = errors.slope;
    for (std::size_t i = 0; i < 2; ++i) {
        curve[i][i] *= 1 + damping;
        if (!is_held(x[i], slope[i], kMost[i])) continue;
        curve[i][i] = 1;
        curve[0][1] = curve[1][0] = 0;
        slope[i] = 0;
    }
    const double determinant = curve[0][0] * curve[1][1] - curve[0][1] * curve[1][0];
    if (determinant <= 0) return x;
    const Pair step = {(curve[1][1] * slope[0] - curve[0][1] * slope[1]) / determinant,
                       (curve[0][0] * slope[1] - curve[1][0] * slope[0]) / determinant};
    return {std::clamp(x[0] - step[0], 0.0, kMost[0]), std::clamp(x[1] - step[1], 0.0, kMost[1])};
}

}  // namespace

double UslFit::per_s(double callers) const {
    return lambda * callers / (1 + sigma * (callers - 1) + kappa * callers * (callers - 1));
}

std::optional<double> UslFit::peak() const {
    if (sigma >= 1) return 1;
    if (kappa <= 0) return std::nullopt;
    return std::sqrt((1 - sigma) / kappa);
}

std::optional<UslFit> fit_usl(std::span<const ScalePoint> points) {
    std::set<double> callers;
    for (const ScalePoint& point : points) {
        if (point.per_s <= 0) return std::nullopt;
        callers.insert(point.callers);
    }
    if (callers.size() < 3) return std::nullopt;
    Pair x = {0.1, 0.001};
    Errors errors = errors_of(points, x);
    double damping = 1e-3;
    for (int step = 0; step < kMostSteps && damping < 1e9; ++step) {
        const Pair next = stepped(x, errors, damping);
        const Errors there = errors_of(points, next);
        if (there.squared < errors.squared) {
            x = next;
            errors = there;
            damping = std::max(damping / 10, 1e-12);
        } else {
            damping *= 10;
        }
    }
    return UslFit{std::exp(errors.log_lambda), x[0], x[1]};
}

}  // namespace hotcount::loadtest
