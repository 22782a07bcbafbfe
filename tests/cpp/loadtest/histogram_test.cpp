#include "load/histogram.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <hotcount/detail/base/random.hpp>
#include <thread>
#include <vector>

namespace hotcount::loadtest {
namespace {

/// The least value such that `quantile` of all are at most it, from the sorted values themselves.
std::int64_t exact_percentile(const std::vector<std::int64_t>& sorted, double quantile) {
    const auto rank =
        static_cast<std::size_t>(std::ceil(quantile * static_cast<double>(sorted.size())));
    return sorted[std::max<std::size_t>(rank, 1) - 1];
}

constexpr double kQuantiles[] = {0, 0.001, 0.25, 0.5, 0.9, 0.99, 0.999, 0.9999, 1};

void expect_three_digits(std::vector<std::int64_t> values) {
    Histogram histogram;
    for (const std::int64_t value : values) histogram.record(value);
    std::sort(values.begin(), values.end());
    EXPECT_EQ(histogram.count(), values.size());
    EXPECT_EQ(histogram.min(), values.front());
    EXPECT_EQ(histogram.max(), values.back());
    for (const double quantile : kQuantiles) {
        const std::int64_t exact = exact_percentile(values, quantile);
        const std::int64_t answer = histogram.value_at(quantile);
        EXPECT_GE(answer, exact) << "quantile " << quantile;
        EXPECT_LE(static_cast<double>(answer), static_cast<double>(exact) * 1.001 + 0.5)
            << "quantile " << quantile;
    }
    double sum = 0;
    for (const std::int64_t value : values) sum += static_cast<double>(value);
    EXPECT_NEAR(histogram.mean(), sum / static_cast<double>(values.size()),
                1e-9 * sum / static_cast<double>(values.size()));
}

TEST(Histogram, AgreesWithTheSortedValuesToThreeDigits) {
    Random random(7);
    std::vector<std::int64_t> uniform;
    std::vector<std::int64_t> long_tailed;
    std::vector<std::int64_t> small;
    for (int i = 0; i < 100'000; ++i) {
        uniform.push_back(static_cast<std::int64_t>(random.below(5'000'000)));
        // Five decades of latencies, as a system under load shows them.
        long_tailed.push_back(static_cast<std::int64_t>(1000 * std::pow(10, 5 * random.unit())));
        small.push_back(static_cast<std::int64_t>(random.below(3000)));
    }
    expect_three_digits(uniform);
    expect_three_digits(long_tailed);
    expect_three_digits(small);
    expect_three_digits({42});
    expect_three_digits({0, 0, 1});
    expect_three_digits({std::int64_t{1} << 40, 3});
}

TEST(Histogram, IsZeroWhereNothingWasRecorded) {
    const Histogram histogram;
    EXPECT_EQ(histogram.count(), 0U);
    EXPECT_EQ(histogram.value_at(0.5), 0);
    EXPECT_EQ(histogram.min(), 0);
    EXPECT_EQ(histogram.max(), 0);
    EXPECT_EQ(histogram.mean(), 0);
}

TEST(Histogram, CountsWhatIsOutOfRangeAtItsEnds) {
    Histogram histogram;
    histogram.record(-5);
    histogram.record(INT64_MAX);
    EXPECT_EQ(histogram.count(), 2U);
    EXPECT_EQ(histogram.min(), 0);
    EXPECT_EQ(histogram.max(), Histogram::kLargest);
    EXPECT_EQ(histogram.value_at(1), Histogram::kLargest);
}

TEST(Histogram, CellsFollowEachOtherWithoutAGapOrAnOverlap) {
    std::int64_t previous_end = -1;
    const std::size_t last = Histogram::cell_of(Histogram::kLargest);
    for (std::size_t cell = 0; cell <= last; ++cell) {
        const std::int64_t begin = previous_end + 1;
        const std::int64_t end = Histogram::cell_end(cell);
        ASSERT_EQ(Histogram::cell_of(begin), cell);
        ASSERT_EQ(Histogram::cell_of(end), cell);
        ASSERT_LE(end - begin, begin / 1024) << "a cell wider than a thousandth";
        previous_end = end;
    }
    EXPECT_EQ(previous_end, Histogram::kLargest);
}

TEST(Histogram, AMergeEqualsRecordingEverythingInOne) {
    Random random(3);
    Histogram all;
    Histogram parts[4];
    for (int i = 0; i < 40'000; ++i) {
        const auto value = static_cast<std::int64_t>(random.below(1U << (8 + i % 20)));
        all.record(value);
        parts[i % 4].record(value);
    }
    Histogram merged;
    merged.merge(Histogram{});
    for (const Histogram& part : parts) merged.merge(part);
    const Histogram copy = merged;
    EXPECT_EQ(copy.count(), all.count());
    EXPECT_EQ(copy.min(), all.min());
    EXPECT_EQ(copy.max(), all.max());
    EXPECT_EQ(copy.mean(), all.mean());
    for (const double quantile : kQuantiles) {
        EXPECT_EQ(copy.value_at(quantile), all.value_at(quantile));
    }
}

TEST(Histogram, MayBeReadWhileItsThreadRecords) {
    Histogram histogram;
    constexpr std::uint64_t kValues = 200'000;
    std::thread writer([&] {
        for (std::uint64_t i = 0; i < kValues; ++i) {
            histogram.record(static_cast<std::int64_t>(i % 100'000));
        }
    });
    std::uint64_t seen = 0;
    while (seen < kValues / 2) {
        Histogram merged;
        merged.merge(histogram);
        const std::uint64_t now = merged.count();
        ASSERT_GE(now, seen);
        seen = now;
    }
    writer.join();
    EXPECT_EQ(histogram.count(), kValues);
}

}  // namespace
}  // namespace hotcount::loadtest
