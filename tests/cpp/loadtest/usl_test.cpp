#include "studies/usl.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace hotcount::loadtest {
namespace {

std::vector<ScalePoint> points_of(const UslFit& law, const std::vector<double>& callers) {
    std::vector<ScalePoint> points;
    for (const double n : callers) points.push_back({n, law.per_s(n)});
    return points;
}

TEST(Usl, FindsTheLawThatMadeThePoints) {
    for (const UslFit law :
         {UslFit{1000, 0.05, 0.001}, UslFit{500, 0.3, 0}, UslFit{20, 0, 0.01}, UslFit{1e6, 0, 0}}) {
        const auto fit = fit_usl(points_of(law, {1, 2, 4, 8, 16, 32}));
        ASSERT_TRUE(fit);
        EXPECT_NEAR(fit->lambda, law.lambda, law.lambda * 1e-6);
        EXPECT_NEAR(fit->sigma, law.sigma, 1e-6);
        EXPECT_NEAR(fit->kappa, law.kappa, 1e-7);
    }
}

TEST(Usl, ThePeakIsWhereThroughputIsHighest) {
    const UslFit law{1000, 0.05, 0.001};
    ASSERT_TRUE(law.peak());
    EXPECT_NEAR(*law.peak(), 30.8, 0.1);
    EXPECT_GT(law.per_s(*law.peak()), law.per_s(*law.peak() - 1));
    EXPECT_GT(law.per_s(*law.peak()), law.per_s(*law.peak() + 1));
    EXPECT_FALSE((UslFit{1000, 0.05, 0}.peak()));
}

TEST(Usl, NeverFitsANegativeShare) {
    // More than proportional: the first points of a machine that warms up.
    const auto fit = fit_usl(std::vector<ScalePoint>{{1, 100}, {2, 230}, {4, 500}, {8, 1100}});
    ASSERT_TRUE(fit);
    EXPECT_EQ(fit->sigma, 0);
    EXPECT_EQ(fit->kappa, 0);
}

TEST(Usl, TwiceAsMuchAndHalfAsMuchWeighTheSame) {
    // Each number of callers once slow and once fast, by the same factor.
    const UslFit made{1000, 0.1, 0.001};
    std::vector<ScalePoint> points;
    for (const double n : {1.0, 2.0, 4.0, 8.0, 16.0}) {
        points.push_back({n, made.per_s(n) * 5});
        points.push_back({n, made.per_s(n) / 5});
    }
    const auto fit = fit_usl(points);
    ASSERT_TRUE(fit);
    EXPECT_NEAR(fit->lambda, made.lambda, 1e-3);
    EXPECT_NEAR(fit->sigma, made.sigma, 1e-6);
    EXPECT_NEAR(fit->kappa, made.kappa, 1e-7);
}

TEST(Usl, NoMoreThanAllOfTheWorkWaitsForOnePlace) {
    const auto fit = fit_usl(std::vector<ScalePoint>{{1, 3000}, {2, 1000}, {4, 900}, {8, 900}});
    ASSERT_TRUE(fit);
    EXPECT_LE(fit->sigma, 1);
    EXPECT_GE(fit->sigma, 0);
}

TEST(Usl, FitsNothingToTooFewPoints) {
    EXPECT_FALSE(fit_usl(std::vector<ScalePoint>{}));
    EXPECT_FALSE(fit_usl(std::vector<ScalePoint>{{1, 10}, {2, 20}, {2, 21}}));
    EXPECT_FALSE(fit_usl(std::vector<ScalePoint>{{1, 10}, {2, 0}, {4, 30}}));
}

TEST(Usl, WhereCallersOnlyWaitForEachOtherOneIsTheFastest) {
    UslFit fit;
    fit.lambda = 2.2e6;
    fit.sigma = 1.09;
    fit.kappa = 0;
    EXPECT_EQ(fit.peak(), 1.0);
}

}  // namespace
}  // namespace hotcount::loadtest
