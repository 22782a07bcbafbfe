#include "load/permutation.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace hotcount::loadtest {
namespace {

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
