// Histograms whose bucket width grows with the value, so that the relative error is bounded.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <numeric>

namespace hotcount {

/// 2^kSubBits buckets for each doubling; values below 2^(kSubBits + 1) have a bucket each.
template <unsigned kSubBits>
struct LogBuckets {
    /// The number of buckets for all 64-bit values.
    static constexpr std::size_t kCount = std::size_t{65 - kSubBits} << kSubBits;

    static constexpr std::size_t index(std::uint64_t value) {
        const auto shift = static_cast<unsigned>(
            std::max(0, static_cast<int>(std::bit_width(value)) - 1 - static_cast<int>(kSubBits)));
        return (static_cast<std::size_t>(shift) << kSubBits) +
               static_cast<std::size_t>(value >> shift);
    }
    /// The largest value of a bucket.
    static constexpr std::uint64_t last(std::size_t index) {
        const std::size_t shift = index < (2U << kSubBits) ? 0 : (index >> kSubBits) - 1;
        const std::uint64_t base = index - (shift << kSubBits);
        return ((base + 1) << shift) - 1;
    }
};

/// A histogram of reply times. A percentile is at most 7 % above the true value. Fixed size. Not
/// thread-safe: one thread uses it, or a lock guards it.
class LatencyHistogram {
  public:
    void record(Duration taken) {
        const auto ns = static_cast<std::uint64_t>(std::max<std::int64_t>(taken.count(), 1));
        ++counts_[Buckets::index(ns)];
        ++total_;
        sum_ += ns;
        max_ = std::max(max_, ns);
    }

    void add(const LatencyHistogram& other) {
        for (std::size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
        total_ += other.total_;
        sum_ += other.sum_;
        max_ = std::max(max_, other.max_);
    }

    /// In microseconds; 0 if nothing was recorded.
    double percentile_us(double percentile) const {
        auto left = static_cast<std::uint64_t>(static_cast<double>(total_) * percentile / 100.0);
        for (std::size_t i = 0; i < counts_.size(); ++i) {
            if (counts_[i] > left)
                return static_cast<double>(std::min(Buckets::last(i), max_)) / 1e3;
            left -= counts_[i];
        }
        return max_us();
    }
    /// How many recorded times are within the bound. Times up to 7 % above it may count too.
    std::uint64_t at_most(Duration bound) const {
        const std::size_t last = Buckets::index(static_cast<std::uint64_t>(bound.count()));
        return std::accumulate(counts_.begin(),
                               counts_.begin() + static_cast<std::ptrdiff_t>(last) + 1,
                               std::uint64_t{0});
    }
    std::uint64_t total() const { return total_; }
    double sum_s() const { return static_cast<double>(sum_) / 1e9; }
    double max_us() const { return static_cast<double>(max_) / 1e3; }

  private:
    using Buckets = LogBuckets<4>;

    std::array<std::uint64_t, Buckets::kCount> counts_{};
    std::uint64_t total_{0};
    std::uint64_t sum_{0};
    std::uint64_t max_{0};
};

}  // namespace hotcount
