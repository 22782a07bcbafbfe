#include "limiter/divisor.hpp"

#include <gtest/gtest.h>

#include <random>

namespace hotcount {
namespace {

constexpr std::int64_t kBound = std::int64_t{1} << 53;

TEST(Divisor, DividesAsADivisionDoes) {
    std::mt19937_64 random(7);
    const auto any = [&] {  // Of any size.
        const int bits = std::uniform_int_distribution<int>(1, 53)(random);
        return std::int64_t(random() >> (64 - bits));
    };
    const auto check = [](std::int64_t divisor, std::int64_t n) {
        if (n < 0 || n >= kBound) return;
        ASSERT_EQ(Divisor{divisor}.divide(n), n / divisor) << n << " / " << divisor;
    };
    for (int i = 0; i < 20'000; ++i) {
        const std::int64_t divisor = any() % kBound + 1;
        check(divisor, any());
        // About the multiples, where a rounding shows.
        const std::int64_t multiple = any() / divisor * divisor;
        const std::int64_t last = (kBound - 1) / divisor * divisor;
        for (const std::int64_t n : {multiple, last, kBound}) {
            check(divisor, n - 1);
            check(divisor, n);
        }
    }
    for (int bit = 0; bit <= 53; ++bit) {
        const std::int64_t power = std::int64_t{1} << bit;
        for (const std::int64_t divisor : {power - 1, power, power + 1}) {
            if (divisor < 1 || divisor > kBound) continue;
            for (const std::int64_t n : {std::int64_t{0}, divisor - 1, divisor, kBound - 1}) {
                check(divisor, n);
            }
        }
    }
}

}  // namespace
}  // namespace hotcount
