// Ranks 1 .. size with P(rank) proportional to rank^-exponent, in constant time and no table.
//
// Rejection-inversion (Hörmann and Derflinger, 1996): the density is covered by a function whose
// integral can be inverted; a draw is rejected rarely (under 1 in 5 for every exponent). Exponent 0
// is uniform, 0.99 is what YCSB uses for "skewed", above 1 a few items get nearly everything.
//
// Immutable: safe to share; the randomness is the caller's.
#pragma once

#include <cstdint>
#include <hotcount/detail/base/random.hpp>

namespace hotcount::loadtest {

class Zipf {
  public:
    /// size at least 1, exponent from 0 to 20.
    Zipf(std::uint64_t size, double exponent);

    std::uint64_t draw(Random& random) const;

  private:
    double integral(double x) const;          // Of x^-exponent, with integral(1) = 0.
    double inverse_integral(double y) const;  // integral(inverse_integral(y)) = y.
    double density(double x) const;

    std::uint64_t size_;
    double exponent_;
    double top_;       // integral at size + 1/2: where the draws begin ...
    double bottom_;    // ... and where they end, above rank 1's own share.
    double shortcut_;  // A draw this near to its rank needs no further check.
};

}  // namespace hotcount::loadtest
