// Latencies, counted in a log-linear histogram: every value keeps three significant digits.
//
//   value   0 .. 2047          one cell each
//           2048 .. 4095       cells of 2, then of 4, 8, ... each power of two in 1024 cells
//
// So a cell is never wider than 1/1024 of the values in it, whether they are 200 ns or 200 s.
// Values are nanoseconds here, but nothing depends on it.
//
// One thread records; any thread may read or merge meanwhile and sees a recent state. The cells
// are zero pages until touched: a histogram costs what the values' range costs, not 264 KB.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hotcount::loadtest {

class Histogram {
  public:
    /// Larger values count as this one: 2^42 ns, 73 minutes.
    static constexpr std::int64_t kLargest = (std::int64_t{1} << 42) - 1;

    Histogram();
    Histogram(const Histogram& other);
    Histogram& operator=(const Histogram& other);
    Histogram(Histogram&&) noexcept = default;
    Histogram& operator=(Histogram&&) noexcept = default;
    ~Histogram() = default;

    /// A negative value counts as 0.
    void record(std::int64_t value);
    /// Adds the other's counts. No other thread may record into *this meanwhile.
    void merge(const Histogram& other);

    std::uint64_t count() const;
    /// The least value v such that the share `quantile` (0 to 1) of all recorded values is <= v,
    /// to within its cell: the cell's upper end, but never above max(). 0 if nothing is recorded.
    std::int64_t value_at(double quantile) const;
    std::int64_t min() const;  ///< Exact; 0 if nothing is recorded.
    std::int64_t max() const;  ///< Exact; 0 if nothing is recorded.
    double mean() const;       ///< Exact but for rounding; 0 if nothing is recorded.

    /// How often a value of this cell was recorded; `cell` is one that cell_of() gives.
    std::uint64_t count_in(std::size_t cell) const;

    /// The cell of a value, and the largest value of a cell.
    static std::size_t cell_of(std::int64_t value);
    static std::int64_t cell_end(std::size_t cell);

  private:
    struct State;
    struct Free {
        void operator()(State* state) const;
    };
    std::unique_ptr<State, Free> state_;
};

}  // namespace hotcount::loadtest
