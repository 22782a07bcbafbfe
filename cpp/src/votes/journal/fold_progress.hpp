// The state of one call of Folder::fold_now(), or of one fold of the thread: the items that it has
// folded and left behind, and the pauses between its attempts.
#pragma once

#include <algorithm>
#include <chrono>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/sql.hpp>
#include <optional>
#include <set>
#include <span>

#include "journal.hpp"

namespace hotcount {

/// Items of the call's own folds. LeftItems does not replace it: several threads report their folds
/// there, and not always in the order of the folds. Sets, because an item may be in several pages.
struct FoldProgress {
    Deadline deadline;
    bool on_demand;             ///< A call of fold_now(), not the thread.
    std::set<sql::Id> shown{};  ///< item.vote_count is up to date.
    /// The item's row, or its rows in the journal, were locked; it has a row in the journal.
    std::set<sql::Id> held{};

    /// Rows up to this id were in the journal when the call's first fold ended, if any were left.
    std::optional<std::int64_t> until{};

    /// Whether the fold has left rows of that time in the journal. Later votes are not waited for.
    bool is_behind(const FoldedPage& folded) {
        if (!folded.left) return false;
        if (!until) until = folded.left->last;
        return folded.left->first <= *until;
    }

    /// A fold ended well. `only`: the items to which it was restricted, if any. If the page was not
    /// full, those of them that had no rows are not held any more.
    void note(const FoldedPage& folded, std::span<const sql::Id> only) {
        for (const FoldedCount& count : folded.counts) {
            shown.insert(count.item);
            held.erase(count.item);
        }
        if (!folded.more) {
            for (const sql::Id& item : only) held.erase(item);
        }
        for (const sql::Id& item : folded.held) {
            shown.erase(item);
            held.insert(item);
        }
    }
};

/// Growing pauses between attempts at items that another transaction has locked, or while another
/// process folds. They end early at the deadline.
class FoldPauses {
  public:
    explicit FoldPauses(Deadline deadline) : deadline_(deadline) {}

    void begin() { next_ = kFirst; }
    void at_least(Duration pause) { next_ = std::max<Duration>(next_, pause); }
    void rest() {
        sleep_or_interrupt(std::min<Duration>(next_, deadline_.remaining()));
        next_ = std::min<Duration>(2 * next_, kLast);
    }

  private:
    static constexpr Duration kFirst = std::chrono::milliseconds{2};
    static constexpr Duration kLast = std::chrono::milliseconds{100};

    const Deadline deadline_;
    Duration next_{kFirst};
};

}  // namespace hotcount
