// Divides by a number that stays: by a multiplication, where a division takes three times as long.
#pragma once

#include <bit>
#include <cstdint>

namespace hotcount {

/// Exact for 0 <= n < 2^53 and divisors of 1 to 2^53. With s the bits of divisor - 1, the factor is
/// 2^(63 + s) / divisor rounded up, so by less than 1. Then n * factor is above
/// n * 2^(63 + s) / divisor by less than n, and the next whole quotient is further away than that.
class Divisor {
  public:
    explicit Divisor(std::int64_t divisor) {
        const auto by = static_cast<std::uint64_t>(divisor);
        shift_ = static_cast<unsigned>(std::bit_width(by - 1));
        factor_ = static_cast<std::uint64_t>(((Wide{1} << (63 + shift_)) + by - 1) / by);
    }
    /// n / divisor, rounded down.
    std::int64_t divide(std::int64_t n) const {
        const Wide product = Wide{factor_} * (static_cast<std::uint64_t>(n) << 1);
        return static_cast<std::int64_t>(static_cast<std::uint64_t>(product >> 64) >> shift_);
    }

  private:
    __extension__ using Wide = unsigned __int128;

    std::uint64_t factor_;
    unsigned shift_;
};

}  // namespace hotcount
