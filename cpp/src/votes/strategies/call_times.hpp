// A histogram of call times: buckets 14 to 25 % wide, from 1 us to 18 minutes.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/histogram.hpp>
#include <hotcount/votes.hpp>
#include <vector>

namespace hotcount {

/// Thread-safe. An add() costs two or three relaxed additions.
class CallTimes {
  public:
    void add(Duration took, std::uint64_t good, std::uint64_t failed) {
        good_.fetch_add(good, std::memory_order_relaxed);
        if (failed > 0) failed_.fetch_add(failed, std::memory_order_relaxed);
        buckets_[bucket_of(took)].fetch_add(1, std::memory_order_relaxed);
    }
    std::uint64_t good() const { return good_.load(std::memory_order_relaxed); }
    std::uint64_t failed() const { return failed_.load(std::memory_order_relaxed); }

    /// The quantile `share`, as the upper end of its bucket; 0 without calls.
    Duration at(double share) const {
        std::uint64_t all = 0;
        for (const auto& bucket : buckets_) all += bucket.load(std::memory_order_relaxed);
        auto left = static_cast<std::int64_t>(share * static_cast<double>(all));
        for (std::size_t i = 0; all > 0 && i < kBuckets; ++i) {
            left -= static_cast<std::int64_t>(buckets_[i].load(std::memory_order_relaxed));
            if (left <= 0 && buckets_[i].load(std::memory_order_relaxed) > 0) return end_of(i);
        }
        return Duration{0};
    }

  private:
    // In units of 0.25 us. Times below 1 us share the first bucket.
    using Buckets = LogBuckets<2>;
    static constexpr Duration kUnit{250};
    static constexpr std::size_t kFirst = Buckets::index(3);
    static constexpr std::size_t kBuckets = 120;

    static std::size_t bucket_of(Duration took) {
        const auto units = static_cast<std::uint64_t>(std::max<Duration::rep>(took / kUnit, 0));
        return std::min(std::max(Buckets::index(units), kFirst) - kFirst, kBuckets - 1);
    }
    static Duration end_of(std::size_t bucket) {
        return kUnit * static_cast<Duration::rep>(Buckets::last(bucket + kFirst) + 1);
    }

    std::atomic<std::uint64_t> good_{0};
    std::atomic<std::uint64_t> failed_{0};
    std::array<std::atomic<std::uint64_t>, kBuckets> buckets_{};
};

/// Measures one call from its construction to end().
class Timed {
  public:
    explicit Timed(CallTimes& times) : times_(times) {}
    void end(std::size_t good, std::size_t failed) const {
        times_.add(std::chrono::steady_clock::now() - begun_, good, failed);
    }
    void end(const Result<Cast>& result) const { end(result ? 1 : 0, result ? 0 : 1); }
    void end(const std::vector<Result<Cast>>& results) const {
        const auto good = static_cast<std::size_t>(std::count_if(
            results.begin(), results.end(), [](const auto& result) { return result.ok(); }));
        end(good, results.size() - good);
    }

  private:
    CallTimes& times_;
    const SteadyTime begun_{std::chrono::steady_clock::now()};
};

}  // namespace hotcount
