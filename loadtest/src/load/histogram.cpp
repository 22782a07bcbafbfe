#include "histogram.hpp"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <hotcount/detail/base/histogram.hpp>
#include <new>

namespace hotcount::loadtest {
namespace {

// 2048 cells of one value: the first power of two above 2 x 10^3.
using Cells = LogBuckets<10>;
constexpr std::size_t kCells = Cells::index(Histogram::kLargest) + 1;

// The only writer is the recording thread, so a plain load and store suffice; they are atomic for
// the readers' sake.
template <class T>
void add(T& cell, T amount) {
    std::atomic_ref<T> shared(cell);
    shared.store(shared.load(std::memory_order_relaxed) + amount, std::memory_order_relaxed);
}

template <class T>
T load(T& cell) {
    return std::atomic_ref<T>(cell).load(std::memory_order_relaxed);
}

template <class T>
void store(T& cell, T value) {
    std::atomic_ref<T>(cell).store(value, std::memory_order_relaxed);
}

}  // namespace

// All zero at first, so that it can be left to calloc, which hands out untouched pages.
struct Histogram::State {
    std::int64_t sum;
    std::int64_t least_plus_one;  // 0 if nothing is recorded.
    std::int64_t largest;
    std::uint64_t cells[kCells];
};

void Histogram::Free::operator()(State* state) const { std::free(state); }

Histogram::Histogram() : state_(static_cast<State*>(std::calloc(1, sizeof(State)))) {
    if (!state_) throw std::bad_alloc();
}

Histogram::Histogram(const Histogram& other) : Histogram() { merge(other); }

Histogram& Histogram::operator=(const Histogram& other) {
    Histogram copy(other);
    state_ = std::move(copy.state_);
    return *this;
}

std::size_t Histogram::cell_of(std::int64_t value) {
    return Cells::index(static_cast<std::uint64_t>(std::clamp<std::int64_t>(value, 0, kLargest)));
}

std::int64_t Histogram::cell_end(std::size_t cell) {
    return static_cast<std::int64_t>(Cells::last(cell));
}

void Histogram::record(std::int64_t value) {
    State& state = *state_;
    const std::int64_t bounded = std::clamp<std::int64_t>(value, 0, kLargest);
    add(state.cells[cell_of(bounded)], std::uint64_t{1});
    add(state.sum, bounded);
    const std::int64_t least = load(state.least_plus_one);
    if (least == 0 || bounded + 1 < least) store(state.least_plus_one, bounded + 1);
    if (bounded > load(state.largest)) store(state.largest, bounded);
}

void Histogram::merge(const Histogram& other) {
    State& state = *state_;
    State& from = *other.state_;
    const std::int64_t from_least = load(from.least_plus_one);
    if (from_least == 0) return;
    if (state.least_plus_one == 0 || from_least < state.least_plus_one) {
        state.least_plus_one = from_least;
    }
    state.largest = std::max(state.largest, load(from.largest));
    state.sum += load(from.sum);
    // A recording thread may be ahead of the bounds just read; what lies outside of them is then
    // missing from this merge, as if it had been recorded after it.
    const std::size_t last = cell_of(state.largest);
    for (std::size_t cell = cell_of(state.least_plus_one - 1); cell <= last; ++cell) {
        const std::uint64_t count = load(from.cells[cell]);
        if (count != 0) state.cells[cell] += count;
    }
}

std::uint64_t Histogram::count() const {
    State& state = *state_;
    const std::int64_t least = load(state.least_plus_one);
    if (least == 0) return 0;
    std::uint64_t total = 0;
    const std::size_t last = cell_of(load(state.largest));
    for (std::size_t cell = cell_of(least - 1); cell <= last; ++cell) {
        total += load(state.cells[cell]);
    }
    return total;
}

std::uint64_t Histogram::count_in(std::size_t cell) const { return load(state_->cells[cell]); }

std::int64_t Histogram::value_at(double quantile) const {
    const std::uint64_t total = count();
    if (total == 0) return 0;
    const double exact = std::ceil(std::clamp(quantile, 0.0, 1.0) * static_cast<double>(total));
    const std::uint64_t rank =
        std::clamp<std::uint64_t>(static_cast<std::uint64_t>(exact), 1, total);
    std::uint64_t seen = 0;
    const std::int64_t largest = max();
    const std::size_t last = cell_of(largest);
    for (std::size_t cell = cell_of(min()); cell <= last; ++cell) {
        seen += load(state_->cells[cell]);
        if (seen >= rank) return std::min(cell_end(cell), largest);
    }
    return largest;
}

std::int64_t Histogram::min() const {
    const std::int64_t least = load(state_->least_plus_one);
    return least == 0 ? 0 : least - 1;
}

std::int64_t Histogram::max() const { return load(state_->largest); }

double Histogram::mean() const {
    const std::uint64_t total = count();
    if (total == 0) return 0.0;
    return static_cast<double>(load(state_->sum)) / static_cast<double>(total);
}

}  // namespace hotcount::loadtest
