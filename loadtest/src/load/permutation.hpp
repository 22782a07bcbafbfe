// A pseudo-random permutation of 0 .. size-1 that needs no table.
//
// A Feistel network over the next power of two; a result outside of the range is permuted again
// until it falls inside (cycle walking), on average less than twice. The same size, key and index
// give the same result everywhere.
//
// The workload uses it twice: to scramble the ranks of the items, and to let the k-th vote on an
// item come from user permute(k), so that an item's votes are unique without looking any up.
//
// Immutable: safe to share. size is at least 1.
#pragma once

#include <cstdint>

namespace hotcount::loadtest {

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
