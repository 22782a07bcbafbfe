// Folds the journal from this process: at the pace that all processes share, and on demand.
//
// A background thread of its own, started by the first append and not joined. It folds after own
// appends when the pause since the last fold, of whatever process, has passed: the longer of
// fold_interval and 20 times what that fold took; at once after 20,000 own rows. A fold that fails
// for one item's sake is halved by item until that item alone is left out; it keeps its rows, is
// named in stats() and tried again later.
#pragma once

#include <functional>
#include <hotcount/base/clock.hpp>
#include <hotcount/base/fork.hpp>
#include <hotcount/base/result.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "journal.hpp"

namespace hotcount {

/// What fold_now() came to, in items.
struct FoldReport {
    std::int64_t shown;   ///< Whose item.vote_count was brought up to date.
    std::int64_t held;    ///< Whose row somebody holds: a later fold does it.
    std::int64_t failed;  ///< That keep their rows.
};

/// Thread-safe. A forked child has one of its own, which has folded nothing.
class Folder {
  public:
    /// Called after a fold's commit, by the thread that folded. May block; folds wait for it.
    using Publish = std::function<void(std::span<const FoldedCount>)>;

    Folder(std::shared_ptr<Journal> journal, const VotesOptions& options, Publish publish = {});
    ~Folder();

    /// Rows of this process were committed. Cheap; never blocks on the database.
    void note_appended(std::size_t rows);
    /// Folds what is in the journal now, whoever appended it and whenever the last fold was.
    Result<FoldReport> fold_now(Deadline deadline);

    struct Stats {
        std::uint64_t folds;   ///< That took rows out of the journal.
        std::uint64_t rows;    ///< That they took.
        std::uint64_t failed;  ///< That ended with an error.
        Duration last_took;    ///< The last one of this process.
        std::int64_t held;     ///< Items that it found held.
        std::vector<std::pair<sql::Id, std::string>> refused;  ///< Items left out, and why.
    };
    Stats stats() const;

  private:
    struct State;
    std::shared_ptr<ForkLocal<State>> state_;
};

}  // namespace hotcount
