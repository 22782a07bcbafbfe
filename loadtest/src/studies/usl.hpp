// The Universal Scalability Law: how throughput grows, and falls, with the number of callers.
//
//   X(n) = lambda n / (1 + sigma (n - 1) + kappa n (n - 1))
//
// lambda is what one caller does. sigma is the share of the work that waits for one place (a lock, a
// disk). kappa is what each pair of callers costs each other; above 0, more callers in the end do
// less.
//
// Pure functions.
#pragma once

#include <optional>
#include <span>
#include <vector>

namespace hotcount::loadtest {

struct ScalePoint {
    double callers;
    double per_s;
};

struct UslFit {
    double lambda{0};
    double sigma{0};
    double kappa{0};

    double per_s(double callers) const;
    /// The number of callers with the highest throughput; none if it never falls.
    std::optional<double> peak() const;
};

/// Least squares of the logarithms, with sigma from 0 to 1 and kappa not below 0. None for fewer than
/// three different numbers of callers, or if a point has no throughput.
std::optional<UslFit> fit_usl(std::span<const ScalePoint> points);

/// By round, what each number of callers did.
using ScaleRounds = std::vector<std::vector<ScalePoint>>;

}  // namespace hotcount::loadtest
