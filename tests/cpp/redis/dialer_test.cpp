#include "redis/dialer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace hotcount::redis {
namespace {

using namespace std::chrono_literals;

// The pauses are drawn, so that only many draws have unlucky ones among them.
TEST(Moves, UnluckyDraws_AreBounded) {
    for (int draw = 0; draw < 2'000; ++draw) {
        Moves moves;
        const SteadyTime begin = std::chrono::steady_clock::now();
        std::vector<SteadyTime> made;
        for (SteadyTime now = begin; now < begin + 20s; now += 5ms) {
            if (moves.due(now)) made.push_back(now);
        }
        ASSERT_GE(made.size(), 10U) << "the server may have become a primary again";
        for (auto first = made.begin(); first != made.end(); ++first) {
            for (const int seconds : {1, 2, 5}) {
                const auto end =
                    std::lower_bound(first, made.end(), *first + std::chrono::seconds{seconds});
                ASSERT_LE(end - first, 2 * seconds + 3) << "in " << seconds << " s";
            }
        }
    }
}

// One that is asked rarely moves at once.
TEST(Moves, AfterAQuietTime_AreMadeAtOnce) {
    Moves moves;
    SteadyTime now = std::chrono::steady_clock::now();
    for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(moves.due(now));
        now += 6s;
    }
}

}  // namespace
}  // namespace hotcount::redis
