#include "draws.hpp"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cmath>

namespace hotcount::loadtest {
namespace {

// (e^x - 1) / x and log(1 + x) / x, which at 0 would be 0 / 0. They keep exponents near 1, where
// the integral turns from a power into a logarithm, free of cancellation.
double expm1_ratio(double x) { return std::abs(x) > 1e-8 ? std::expm1(x) / x : 1 + x / 2; }
double log1p_ratio(double x) { return std::abs(x) > 1e-8 ? std::log1p(x) / x : 1 - x / 2; }

constexpr int kRounds = 6;
constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio: the bits look random.

std::uint64_t scramble(std::uint64_t word) {
    word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93;
    word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93;
    return word ^ (word >> 32);
}

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

std::uint64_t mix(std::uint64_t a, std::uint64_t b) { return scramble(scramble(a + kOdd) ^ b); }

Permutation::Permutation(std::uint64_t size) : size_(size) {
    assert(size >= 1);
    const auto bits = static_cast<int>(std::bit_width(size - 1));
    low_bits_ = bits / 2;
    low_mask_ = (std::uint64_t{1} << low_bits_) - 1;
    high_mask_ = (std::uint64_t{1} << (bits - low_bits_)) - 1;
}

std::uint64_t Permutation::permute(std::uint64_t key, std::uint64_t index) const {
    assert(index < size_);
    std::uint64_t result = index;
    do {
        std::uint64_t low = result & low_mask_;
        std::uint64_t high = result >> low_bits_;
        std::uint64_t round_key = key;
        // Each half in turn is changed by a function of the other: undone in reverse order, so
        // no two inputs meet, whatever the function. The halves may differ by one bit.
        for (int round = 0; round < kRounds; round += 2) {
            round_key += kOdd;
            high ^= scramble(low + round_key) & high_mask_;
            round_key += kOdd;
            low ^= scramble(high + round_key) & low_mask_;
        }
        result = (high << low_bits_) | low;
    } while (result >= size_);
    return result;
}

}  // namespace hotcount::loadtest
