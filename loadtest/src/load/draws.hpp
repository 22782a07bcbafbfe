// What the traffic is drawn with: skewed ranks (Zipf), and numbers in a scrambled order without
// repetition (Permutation).
//
// All of it is immutable and safe to share between threads; the randomness is the caller's.
#pragma once

#include <cstdint>
#include <hotcount/detail/base/random.hpp>

namespace hotcount::loadtest {

/// Ranks 1 .. size with P(rank) proportional to rank^-exponent, in constant time and no table.
///
/// Rejection-inversion (Hörmann and Derflinger, 1996): the density is covered by a function whose
/// integral can be inverted; a draw is rejected rarely (under 1 in 5 for every exponent). Exponent 0
/// is uniform, 0.99 is what YCSB uses for "skewed", above 1 a few items get nearly everything.
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

/// A pseudo-random permutation of 0 .. size-1 that needs no table.
///
/// A Feistel network over the next power of two; a result outside of the range is permuted again
/// until it falls inside (cycle walking), on average less than twice. The same size, key and index
/// give the same result everywhere.
///
/// The workload uses it twice: to scramble the ranks of the items, and to let the k-th vote on an
/// item come from user permute(k), so that an item's votes are unique without looking any up.
///
/// size is at least 1.
class Permutation {
  public:
    explicit Permutation(std::uint64_t size);

    std::uint64_t size() const { return size_; }
    /// The place of `index` (below size) in the permutation that `key` names.
    std::uint64_t permute(std::uint64_t key, std::uint64_t index) const;

  private:
    std::uint64_t size_;
    int low_bits_;
    std::uint64_t low_mask_;
    std::uint64_t high_mask_;
};

/// Mixes two words into one, well enough for keys and seeds.
std::uint64_t mix(std::uint64_t a, std::uint64_t b);

}  // namespace hotcount::loadtest
