// Folds the journal from this process: at the pace that all processes share, and on demand.
//
// A background thread, started by the first append or watch() and not joined, folds after appends of
// this process. It waits for the pause since the last fold, of whatever process: the longer of
// fold_interval and 20 times what that fold took (at most 60 s of the latter). After 20,000 own rows
// it folds at once. A fold that fails because of one item is halved by item until that item alone is
// left out; the item keeps its rows, is named in stats(), and is tried again after 30 s. Folds fail
// until one ends well and leaves no item out.
//
// Rows that triggers append for others (outside_writes) have no process that would fold them. So the
// thread looks for them: 5 s after the last fold of this process, look or first use, or fold_interval
// if that is longer, and up to a tenth more. A look is one SELECT on a connection for reading. It
// leads to a fold if rows wait and no process has folded for as long. Tables without such triggers are
// looked at once; the next use of the Votes has them looked at again.
#pragma once

#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/result.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "journal.hpp"

namespace hotcount {

/// The pause between two looks for rows of others; a look comes up to a tenth of it later.
Duration look_pause(const VotesOptions& options);

/// The outcome of fold_now(), in items.
struct FoldReport {
    std::int64_t shown{0};   ///< Whose item.vote_count was brought up to date.
    std::int64_t held{0};    ///< Whose row somebody holds: a later fold brings them up to date.
    std::int64_t failed{0};  ///< Whose fold failed: they keep their rows.
    bool more{false};        ///< The time was too short for other items.
};

/// Thread-safe. A forked child has one of its own, which has folded nothing.
class Folder {
  public:
    /// Called after a fold's commit, by the thread that folded. May block: the next fold of this
    /// process waits for it.
    using Publish = std::function<void(std::span<const FoldedCount>)>;

    /// `patience`: how long one fold of the background thread may take.
    Folder(std::shared_ptr<Journal> journal, const VotesOptions& options, Duration patience,
           Publish publish = {});
    Folder(const Folder&) = delete;
    Folder& operator=(const Folder&) = delete;
    /// A fold under way goes on without this object, and one for what it has appended since.
    ~Folder();

    /// Rows of this process were committed. Never waits for the database.
    void note_appended(std::size_t rows);
    /// Rows of the journal were read, to be summed: the longer it is, the sooner the next fold of this
    /// process, if it folds. Never waits for the database.
    void note_read(std::size_t rows);
    /// This process uses the tables: has the thread look for rows of others. Costs one load of memory
    /// while it looks already. Never waits for the database.
    void watch();
    /// Folds what is in the journal now, whoever appended it and whenever the last fold was; waits
    /// for items that somebody holds, until the deadline.
    Result<FoldReport> fold_now(Deadline deadline);
    /// The same, and waits for nobody's items.
    Result<FoldReport> fold_once(Deadline deadline);

    struct Stats {
        std::uint64_t folds;     ///< That took rows out of the journal.
        std::uint64_t rows;      ///< That they took.
        std::uint64_t failed;    ///< That ended with an error, or left an item out because of one.
        std::uint64_t failing;   ///< Of these, those since the last fold that ended well.
        Duration failing_for;    ///< Since the first of those ended.
        Duration took;           ///< The last one.
        std::int64_t held;       ///< Items that it found held.
        Duration held_for;       ///< How long the longest of them is known to be held.
        std::string last_error;  ///< Of the last one that failed; empty once one ends well.
        /// Items left out, and why.
        std::vector<std::pair<sql::Id, std::string>> refused;
    };
    Stats stats() const;
    /// See Votes::take_event(). Costs one load of memory if there is nothing to tell.
    std::optional<VotesEvent> take_event() const;

  private:
    struct Work;
    // Ends the work of this process, if it is destroyed in it.
    struct Handle {
        explicit Handle(std::shared_ptr<Work> of) : work(std::move(of)) {}
        Handle(const Handle&) = delete;
        Handle& operator=(const Handle&) = delete;
        ~Handle();
        const std::shared_ptr<Work> work;
    };
    mutable ForkLocal<Handle> handle_;
};

}  // namespace hotcount
