// Random numbers from a seed: a failing run is repeated with the same seed.
#pragma once

#include <array>
#include <cstdint>

namespace hotcount {

/// xoshiro256**: 64 random bits per call, in about 1 ns. Not for secrets. Not thread-safe: use one
/// object per thread.
class Random {
  public:
    using result_type = std::uint64_t;

    explicit Random(std::uint64_t seed);

    std::uint64_t next();
    /// Uniform in [0, bound); bound must be positive. Without modulo bias.
    std::uint64_t below(std::uint64_t bound);
    /// Uniform in [0, 1), with 53 random bits.
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
