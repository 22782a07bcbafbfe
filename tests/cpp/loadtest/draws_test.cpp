#include "load/workload.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <hotcount/detail/base/random.hpp>
#include <vector>

namespace hotcount::loadtest {
namespace {

/// Pearson's statistic of the draws against the exact probabilities, in standard deviations from
/// its mean; ranks with few expected draws are taken together.
double deviation(std::uint64_t size, double exponent, std::uint64_t draws, std::uint64_t seed) {
    const Zipf zipf(size, exponent);
    Random random(seed);
    std::vector<std::uint64_t> counts(size + 1, 0);
    for (std::uint64_t i = 0; i < draws; ++i) {
        const std::uint64_t rank = zipf.draw(random);
        EXPECT_GE(rank, 1U);
        EXPECT_LE(rank, size);
        ++counts[rank];
    }
    double total = 0;
    for (std::uint64_t rank = 1; rank <= size; ++rank) {
        total += std::pow(static_cast<double>(rank), -exponent);
    }
    double statistic = 0;
    double cells = 0;
    double expected = 0;
    double seen = 0;
    for (std::uint64_t rank = 1; rank <= size; ++rank) {
        expected +=
            static_cast<double>(draws) * std::pow(static_cast<double>(rank), -exponent) / total;
        seen += static_cast<double>(counts[rank]);
        if (expected < 20 && rank != size) continue;
        statistic += (seen - expected) * (seen - expected) / expected;
        ++cells;
        expected = seen = 0;
    }
    const double freedom = cells - 1;
    return freedom < 1 ? 0 : (statistic - freedom) / std::sqrt(2 * freedom);
}

TEST(Zipf, DrawsEachRankWithItsProbability) {
    for (const double exponent : {0.0, 0.3, 0.5, 0.99, 1.0, 1.0 + 1e-9, 1.01, 1.5, 2.0, 4.0}) {
        for (const std::uint64_t size : {2, 3, 10, 1000}) {
            EXPECT_LT(deviation(size, exponent, 200'000, 11), 5.0)
                << "exponent " << exponent << " size " << size;
        }
    }
    EXPECT_LT(deviation(100'000, 0.99, 1'000'000, 12), 5.0);
}

TEST(Zipf, TheTestWouldSeeAWrongExponent) {
    const Zipf zipf(1000, 0.95);
    Random random(5);
    std::uint64_t first = 0;
    constexpr std::uint64_t kDraws = 200'000;
    for (std::uint64_t i = 0; i < kDraws; ++i) first += zipf.draw(random) == 1 ? 1 : 0;
    double total = 0;
    for (int rank = 1; rank <= 1000; ++rank) total += std::pow(rank, -0.99);
    const double expected = kDraws / total;
    EXPECT_GT(std::abs(static_cast<double>(first) - expected) / std::sqrt(expected), 10.0);
}

TEST(Zipf, KnowsOneItem) {
    Random random(1);
    for (const double exponent : {0.0, 0.99, 1.0, 3.0}) {
        const Zipf zipf(1, exponent);
        for (int i = 0; i < 1000; ++i) ASSERT_EQ(zipf.draw(random), 1U);
    }
}

TEST(Zipf, StaysInRangeWhereThereAreManyItems) {
    Random random(2);
    constexpr std::uint64_t kSize = 50'000'000;
    for (const double exponent : {0.0, 0.5, 0.99, 1.0, 20.0}) {
        const Zipf zipf(kSize, exponent);
        for (int i = 0; i < 20'000; ++i) {
            const std::uint64_t rank = zipf.draw(random);
            ASSERT_GE(rank, 1U);
            ASSERT_LE(rank, kSize);
        }
    }
}

TEST(Permutation, TakesEveryPlaceExactlyOnce) {
    for (const std::uint64_t size : {1, 2, 3, 4, 5, 7, 8, 9, 100, 1000, 1023, 1024, 1025, 65'537}) {
        const Permutation permutation(size);
        for (const std::uint64_t key : {0, 1, 77}) {
            std::vector<bool> taken(size, false);
            for (std::uint64_t index = 0; index < size; ++index) {
                const std::uint64_t place = permutation.permute(key, index);
                ASSERT_LT(place, size);
                ASSERT_FALSE(taken[place]) << "size " << size << " key " << key;
                taken[place] = true;
            }
        }
    }
}

TEST(Permutation, IsTheSameForTheSameKeyAndAnotherForAnother) {
    const Permutation permutation(10'000);
    std::uint64_t equal = 0;
    for (std::uint64_t index = 0; index < 10'000; ++index) {
        ASSERT_EQ(permutation.permute(5, index), Permutation(10'000).permute(5, index));
        if (permutation.permute(5, index) == permutation.permute(6, index)) ++equal;
    }
    // Two random permutations agree in about one place.
    EXPECT_LT(equal, 10U);
}

TEST(Permutation, SendsNeighboursFarApart) {
    constexpr std::uint64_t kSize = 1 << 16;
    const Permutation permutation(kSize);
    std::uint64_t near = 0;
    for (std::uint64_t index = 1; index < kSize; ++index) {
        const auto a = static_cast<std::int64_t>(permutation.permute(9, index - 1));
        const auto b = static_cast<std::int64_t>(permutation.permute(9, index));
        if (a - b < 100 && b - a < 100) ++near;
    }
    // By chance 200 in 65,536: about 200 of them.
    EXPECT_LT(near, 400U);
    EXPECT_GT(near, 100U);
}

}  // namespace
}  // namespace hotcount::loadtest
