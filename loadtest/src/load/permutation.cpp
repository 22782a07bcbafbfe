#include "permutation.hpp"

#include <bit>
#include <cassert>

namespace hotcount::loadtest {
namespace {

constexpr int kRounds = 6;
constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio: the bits look random.

std::uint64_t scramble(std::uint64_t word) {
    word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93;
    word = (word ^ (word >> 32)) * 0xd6e8feb86659fd93;
    return word ^ (word >> 32);
}

}  // namespace

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
