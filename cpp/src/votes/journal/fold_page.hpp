// How many rows the next fold of a process takes.
//
// A server locks what a fold changes until its COMMIT. On PostgreSQL that stops no voter, so a page is
// as large as it may be (kFoldPage) unless folds pass their deadlines. On MariaDB and MySQL voters share
// the rows of items with one another and not with a fold (Journal::may_starve()): their votes wait, and
// are tried again after 5 ms or more. There a page begins with 1,000 rows. One that locked its items for
// longer than `kMostHeld` makes the next one smaller in proportion; a full one that locked them for less
// than half of that makes it twice as large.
//
// Each page costs some 15 round trips and a COMMIT, so a busy server or a long way to it folds small
// pages more slowly than votes come in. A run of pages that goes on for `kBehind` makes them as large as
// they may be: a growing journal delays every exact read.
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

    /// A fold has ended at `now`; `spent`: with the pages before it.
    void fit(const FoldedPage& folded, SteadyTime now, Duration spent) {
        const bool patient = voters_wait_ && spent < kBehind;
        const Duration held = folded.locked == SteadyTime{} ? Duration{0} : now - folded.locked;
        if (patient && held > kMostHeld && folded.rows > kLeastHeldPage) {
            const auto fits = static_cast<std::size_t>(static_cast<double>(folded.rows) *
                                                       (Seconds{kMostHeld} / Seconds{held}));
            rows_ = std::min(rows(), std::max(fits, kLeastHeldPage));
        } else if (folded.more && (!patient || held < kMostHeld / 2)) {
            rows_ = std::min(2 * rows(), kFoldPage);
        }
    }

  private:
    using Seconds = std::chrono::duration<double>;

    static constexpr std::size_t kLeastPage = 100;
    static constexpr std::size_t kLeastHeldPage = 200;
    static constexpr std::size_t kFirstHeldPage = 1'000;
    static constexpr Duration kMostHeld = std::chrono::milliseconds{20};
    static constexpr Duration kBehind = std::chrono::seconds{1};

    const bool voters_wait_;
    std::atomic<std::size_t> rows_;
};

}  // namespace hotcount
