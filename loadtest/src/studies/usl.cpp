#include "usl.hpp"

#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <set>
#include <utility>

namespace hotcount::loadtest {
namespace {

// n / X(n) = a + b (n - 1) + c n (n - 1) with a = 1/lambda, b = sigma/lambda, c = kappa/lambda.
// Divided by the measured n / X, so that each point counts by its relative error.
using Row = std::array<double, 3>;

Row row_of(const ScalePoint& point) {
    const double n = point.callers;
    const double weight = point.per_s / n;
    return {weight, weight * (n - 1), weight * n * (n - 1)};
}

/// Least squares of rows * x = 1 for the members of x that `free` names; the others are 0. None if
/// the points do not determine them.
std::optional<Row> solve(std::span<const ScalePoint> points, const std::array<bool, 3>& free) {
    std::array<std::array<double, 4>, 3> system{};
    for (std::size_t i = 0; i < 3; ++i) {
        if (!free[i]) system[i][i] = 1;
    }
    for (const ScalePoint& point : points) {
        const Row row = row_of(point);
        for (std::size_t i = 0; i < 3; ++i) {
            if (!free[i]) continue;
            for (std::size_t j = 0; j < 3; ++j) {
                if (free[j]) system[i][j] += row[i] * row[j];
            }
            system[i][3] += row[i];
        }
    }
    for (std::size_t pivot = 0; pivot < 3; ++pivot) {
        std::size_t best = pivot;
        for (std::size_t i = pivot + 1; i < 3; ++i) {
            if (std::abs(system[i][pivot]) > std::abs(system[best][pivot])) best = i;
        }
        std::swap(system[pivot], system[best]);
        if (std::abs(system[pivot][pivot]) < 1e-12) return std::nullopt;
        for (std::size_t i = 0; i < 3; ++i) {
            if (i == pivot) continue;
            const double factor = system[i][pivot] / system[pivot][pivot];
            for (std::size_t j = pivot; j < 4; ++j) system[i][j] -= factor * system[pivot][j];
        }
    }
    Row x{};
    for (std::size_t i = 0; i < 3; ++i) x[i] = system[i][3] / system[i][i];
    return x;
}

double squared_error(std::span<const ScalePoint> points, const Row& x) {
    double sum = 0;
    for (const ScalePoint& point : points) {
        const Row row = row_of(point);
        const double error = row[0] * x[0] + row[1] * x[1] + row[2] * x[2] - 1;
        sum += error * error;
    }
    return sum;
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
    // With a bound of 0 on two of three members, the best is the best of these.
    constexpr std::array<std::array<bool, 3>, 4> kFree = {
        {{true, true, true}, {true, true, false}, {true, false, true}, {true, false, false}}};
    std::optional<UslFit> fit;
    double least = std::numeric_limits<double>::infinity();
    for (const auto& free : kFree) {
        const auto x = solve(points, free);
        if (!x || (*x)[0] <= 0 || (*x)[1] < 0 || (*x)[2] < 0) continue;
        const double error = squared_error(points, *x);
        if (error >= least) continue;
        least = error;
        fit = UslFit{1 / (*x)[0], (*x)[1] / (*x)[0], (*x)[2] / (*x)[0]};
    }
    return fit;
}

}  // namespace hotcount::loadtest
