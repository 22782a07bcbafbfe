// Random numbers, as a parameter: a failing run can be repeated from its seed.
#pragma once

#include <array>
#include <cstdint>

namespace hotcount {

/// xoshiro256**: 64 random bits a call in about a nanosecond. Not for secrets.
/// One object per thread: not safe to share.
class Random {
  public:
    using result_type = std::uint64_t;

    explicit Random(std::uint64_t seed);

    std::uint64_t next();
    /// Uniform in [0, bound); bound must be positive. Without modulo bias.
    std::uint64_t below(std::uint64_t bound);
    /// Uniform in [0, 1), 53 bits.
    double unit();

    // The standard's generator interface, for std::shuffle and distributions.
    static constexpr result_type min() { return 0; }
    static constexpr result_type max() { return ~result_type{0}; }
    result_type operator()() { return next(); }

  private:
    std::array<std::uint64_t, 4> state_;
};

/// The calling thread's own generator, seeded from the system and again in a forked child.
Random& thread_random();

}  // namespace hotcount
