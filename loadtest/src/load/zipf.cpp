#include "zipf.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace hotcount::loadtest {
namespace {

// (e^x - 1) / x and log(1 + x) / x, which at 0 would be 0 / 0. They keep exponents near 1, where
// the integral turns from a power into a logarithm, free of cancellation.
double expm1_ratio(double x) { return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1 + x / 2; }
double log1p_ratio(double x) { return std::abs(x) > 1e-8 ? std::log1p(x) / x : 1 - x / 2; }

}  // namespace

Zipf::Zipf(std::uint64_t size, double exponent) : size_(size), exponent_(exponent) {
    assert(size >= 1 && exponent >= 0);
    top_ = integral(static_cast<double>(size) + 0.5);
    // Rank 1 is exact: its share is 1 = density(1), not the integral from 1/2 to 3/2.
    bottom_ = integral(1.5) - 1;
    shortcut_ = 2 - inverse_integral(integral(2.5) - density(2));
}

double Zipf::integral(double x) const {
    const double log_x = std::log(x);
    return expm1_ratio((1 - exponent_) * log_x) * log_x;
}

double Zipf::inverse_integral(double y) const {
    // Rounding may carry the argument of the logarithm just below its domain.
    const double t = std::max(y * (1 - exponent_), -1.0);
    return std::exp(log1p_ratio(t) * y);
}

double Zipf::density(double x) const { return std::exp(-exponent_ * std::log(x)); }

std::uint64_t Zipf::draw(Random& random) const {
    if (exponent_ == 0) return 1 + random.below(size_);
    for (;;) {
        const double u = top_ + random.unit() * (bottom_ - top_);
        const double x = inverse_integral(u);
        const double rank = std::clamp(std::round(x), 1.0, static_cast<double>(size_));
        if (rank - x <= shortcut_ || u >= integral(rank + 0.5) - density(rank)) {
            return static_cast<std::uint64_t>(rank);
        }
    }
}

}  // namespace hotcount::loadtest
