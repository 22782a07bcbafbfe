// How many rows the next fold of a process takes.
//
// A server locks what a fold changes until its COMMIT. On PostgreSQL that stops no voter, so a page is
// as large as it may be (kFoldPage) unless folds pass their deadlines. On MariaDB and MySQL voters share
// the rows of items with one another and not with a fold (Journal::may_starve()): their votes wait, and
// are tried again after 5 ms or more. There a page begins with 1,000 rows. One that took longer than
// `kMostHeld` makes the next one smaller in proportion; a full one that took less than half of that makes
// it twice as large. Small pages fold as many rows a second: 20,000 rows of 1,000 items took 0.8 s on
// MariaDB, 125 rows of as many items 5 ms. kLeastHeldPage keeps a slow COMMIT from being most of a fold.
#pragma once

#include <algorithm>
#include <atomic>
#include <hotcount/clock.hpp>

#include "journal.hpp"

namespace hotcount {

/// Thread-safe: of two folds that end at once, one sets the size.
class FoldPage {
  public:
    explicit FoldPage(bool voters_wait)
        : voters_wait_(voters_wait), rows_(voters_wait ? kFirstHeldPage : kFoldPage) {}

    std::size_t rows() const { return rows_.load(std::memory_order_relaxed); }

    /// A fold was given up at its deadline. False if a smaller page is of no use.
    bool shrink(std::size_t asked) {
        rows_ = std::max(rows() / 4, kLeastPage);
        return asked > kLeastPage;
    }

    /// A fold has ended, after `took`.
    void fit(const FoldedPage& folded, Duration took) {
        if (voters_wait_ && took > kMostHeld && folded.rows > kLeastHeldPage) {
            const auto fits = static_cast<std::size_t>(static_cast<double>(folded.rows) *
                                                       (Seconds{kMostHeld} / Seconds{took}));
            rows_ = std::min(rows(), std::max(fits, kLeastHeldPage));
        } else if (folded.more && (!voters_wait_ || took < kMostHeld / 2)) {
            rows_ = std::min(2 * rows(), kFoldPage);
        }
    }

  private:
    using Seconds = std::chrono::duration<double>;

    static constexpr std::size_t kLeastPage = 100;
    static constexpr std::size_t kLeastHeldPage = 200;
    static constexpr std::size_t kFirstHeldPage = 1'000;
    static constexpr Duration kMostHeld = std::chrono::milliseconds{20};

    const bool voters_wait_;
    std::atomic<std::size_t> rows_;
};

}  // namespace hotcount
