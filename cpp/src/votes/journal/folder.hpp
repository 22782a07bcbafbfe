// Folds the journal from this process, at a pace that all processes share, and on demand.
//
// A background thread folds after appends of this process; the first append or watch() starts it,
// and it is not joined. It keeps a pause since the last fold of any process: fold_interval, or 20
// times the duration of that fold up to 60 s, whichever is longer. After 20,000 rows of its own it
// folds at once. If a fold fails because of one item, the fold is repeated with half of the items
// until that item alone is left out. The item keeps its rows, is named in stats(), and is retried
// after 30 s. Folds count as failing until one succeeds and leaves no item out.
//
// No process folds the rows that triggers append for other writers (outside_writes). So the thread
// looks for them: 5 s, or fold_interval if that is longer, and up to a tenth more after the last
// fold of this process, look or first use. A look is one SELECT on a connection for reading. A fold
// follows if rows wait and no process has folded for as long. In tables without such triggers the
// thread looks once, and again at the next use of the Votes.
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

/// The pause between two looks for rows of other processes, plus up to a tenth.
Duration look_pause(const VotesOptions& options);

/// The outcome of fold_now(), in items.
struct FoldReport {
    std::int64_t shown{0};   ///< Items whose item.vote_count is up to date.
    std::int64_t held{0};    ///< Items whose row is locked; a later fold updates them.
    std::int64_t failed{0};  ///< Items whose fold failed; they keep their rows.
    bool more{false};        ///< The deadline passed before all items were folded.
};

/// Thread-safe. A forked child begins with a Folder of its own.
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
    /// A fold under way, and a fold that is due for appended rows, continue without this object.
    ~Folder();

    /// Rows of this process were committed. Never waits for the database.
    void note_appended(std::size_t rows);
    /// A read has summed rows of the journal: the more rows, the sooner the next fold of this
    /// process, if it folds. Never waits for the database.
    void note_read(std::size_t rows);
    /// This process uses the tables: starts the looks for rows of other writers. One load of memory
    /// if they are started. Never waits for the database.
    void watch();
    /// Folds all rows of the journal, of any process, without a pause; waits for locked items until
    /// the deadline.
    Result<FoldReport> fold_now(Deadline deadline);
    /// As fold_now(), but does not wait for locked items.
    Result<FoldReport> fold_once(Deadline deadline);

    struct Stats {
        std::uint64_t folds;     ///< Folds that took rows out of the journal.
        std::uint64_t rows;      ///< Rows that they took.
        std::uint64_t failed;    ///< Folds that failed, or left an item out because of an error.
        std::uint64_t failing;   ///< Failed folds since the last one that succeeded.
        Duration failing_for;    ///< Time since the first of these failed folds ended.
        Duration took;           ///< Duration of the last fold.
        std::int64_t held;       ///< Items that the last fold found locked.
        Duration held_for;       ///< How long the longest of them is known to be locked.
        std::string last_error;  ///< Error of the last failed fold; empty once one succeeds.
        /// Items left out, and why.
        std::vector<std::pair<sql::Id, std::string>> refused;
    };
    Stats stats() const;
    /// See Votes::take_event(). One load of memory if there is no event.
    std::optional<VotesEvent> take_event() const;

  private:
    struct Work;
    // Ends the work when destroyed in the process that began it.
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
