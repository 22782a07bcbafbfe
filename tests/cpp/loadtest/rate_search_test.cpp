#include "studies/rate_search.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <vector>

namespace hotcount::loadtest {
namespace {

/// Drives a search to its end; the rates tried.
std::vector<double> drive(RateSearch& search, const std::function<bool(double)>& holds) {
    std::vector<double> tried;
    while (const auto rate = search.next()) {
        tried.push_back(*rate);
        search.note(holds(*rate));
        if (tried.size() == 1000) break;
    }
    return tried;
}

TEST(RateSearch, FindsTheLimitToThreePercent) {
    for (const double from : {10.0, 900.0, 1000.0, 30'000.0}) {
        RateSearch search(from);
        const auto tried = drive(search, [](double rate) { return rate <= 1000; });
        EXPECT_LE(search.confirmed(), 1000) << from;
        EXPECT_GT(search.refused(), 1000) << from;
        EXPECT_LE(search.refused(), search.confirmed() * RateSearch::kPrecision) << from;
        EXPECT_LE(tried.size(), 30U) << from;
        // The last three confirm it.
        for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(tried[tried.size() - 1 - i], tried.back());
    }
}

TEST(RateSearch, RampsByHalf) {
    RateSearch search(100);
    const auto tried = drive(search, [](double rate) { return rate < 200; });
    ASSERT_GE(tried.size(), 4U);
    EXPECT_DOUBLE_EQ(tried[1], 150);
    EXPECT_DOUBLE_EQ(tried[2], 225);
    EXPECT_DOUBLE_EQ(tried[3], 225);  // A refusal takes two.
}

TEST(RateSearch, OneMissIsForgiven) {
    RateSearch search(100);
    int missed = 0;
    drive(search, [&](double rate) { return rate < 1000 && (rate < 400 || ++missed != 1); });
    EXPECT_GT(search.confirmed(), 960);
}

TEST(RateSearch, ARateThatDoesNotHoldAgainIsNotConfirmed) {
    // Holds the first time it is tried, and not again above 500.
    RateSearch search(100);
    std::vector<double> seen;
    drive(search, [&](double rate) {
        const bool again = !seen.empty() && seen.back() == rate;
        seen.push_back(rate);
        return rate < 500 ||
               (rate < 1000 && !again && search.phase() != RateSearch::Phase::confirm);
    });
    EXPECT_GT(search.confirmed(), 0);
    EXPECT_LT(search.confirmed(), 500);
    EXPECT_GE(search.refused(), 500);
}

TEST(RateSearch, EndsWhereNothingHolds) {
    RateSearch search(50'000);
    const auto tried = drive(search, [](double) { return false; });
    EXPECT_EQ(search.confirmed(), 0);
    EXPECT_EQ(search.held(), 0);
    EXPECT_LE(tried.size(), 30U);
}

TEST(RateSearch, EndsWhereEverythingHolds) {
    RateSearch search(50'000);
    const auto tried = drive(search, [](double) { return true; });
    EXPECT_EQ(search.confirmed(), RateSearch::kMost);
    EXPECT_EQ(search.refused(), 0);
    EXPECT_LE(tried.size(), 30U);
}

}  // namespace
}  // namespace hotcount::loadtest
