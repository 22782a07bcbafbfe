// How votes are written: the checks of a call's ballots, the queued votes, and the writer of a
// dialect, which writes one vote or many, in the caller's transaction or in one of their own.
//
// SQLite's transaction is the only writer, so it reads a row and then writes it. On the servers
// another voter may stand between the two: there the row itself keeps its old value, in one upsert.
#pragma once

#include <cstddef>
#include <functional>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/sql/group_commit.hpp>
#include <hotcount/detail/votes/integrations.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "layout.hpp"

namespace hotcount {

// -- checks before anything is queued or sent -----------------------------------------------------
//
// They refuse ids that no database takes, that would fail a transaction of many votes, or that
// another database would take for another id.

/// A config error for an id that is not of its type, or is a text with a NUL, invalid UTF-8, or
/// more than `most` bytes. `what` is the id's name in the message: "item".
Result<void> check_id(const sql::Id& id, IdType type, const char* what,
                      std::size_t most = kMaxKeyBytes);

/// A call's ballots: the accepted ones, and the errors of the refused ones.
class CheckedBallots {
  public:
    CheckedBallots(std::span<const Ballot> ballots, const VotesOptions& options);

    bool all_good() const { return refused_.empty(); }
    /// The accepted ballots.
    const std::vector<Ballot>& good() const { return good_; }
    /// The results of the accepted ballots, with the refusals in their places.
    std::vector<Result<Cast>> merge(std::vector<Result<Cast>> results) const;

  private:
    std::size_t size_;
    std::vector<Ballot> good_{};  // Empty if all ballots are accepted.
    std::vector<std::pair<std::size_t, Error>> refused_{};
};

// -- votes that wait for their transaction --------------------------------------------------------

/// The rows of a ballot that another transaction may hold.
sql::RowKeys keys_of(const Ballot& ballot);

struct QueuedVote : sql::QueuedWrite {
    explicit QueuedVote(const Ballot& to_cast) : QueuedWrite(keys_of(to_cast)), ballot(to_cast) {}
    /// write_behind: the vote is not written, because stream_fence was raised after the vote was
    /// taken from its stream. The worker takes it again, or drops it.
    void refuse_outside_fence();

    const Ballot ballot;  // A copy: the caller may leave at its deadline, in mid-commit.
    // write_behind: stream_fence as it was when the vote was taken. The same object for a page.
    std::shared_ptr<const std::string> fence{};
    bool outside_fence{false};
    Cast cast{};
    int tries{0};          // The writer's: how often it tried in vain.
    std::size_t place{0};  // Its index in the batch: set by sorted_votes().
};

/// A vote of strategy cached, and the state that its transaction read with it.
struct QueuedCachedVote final : QueuedVote {
    using QueuedVote::QueuedVote;
    std::int64_t epoch{0};                       // Of the item; only if the vote changed something.
    std::shared_ptr<const std::string> space{};  // The tables' cache id.
    std::optional<sql::Id> item{};               // SyncState::item
    bool item_by_item{false};                    // Its item needs a statement of its own.
    const sql::Id& counted_item() const { return item ? *item : ballot.item; }
};

/// Called after the commit of a batch, with about how many rows it has added to the journal.
using NoteAppended = std::function<void(std::size_t)>;

/// The votes of one Votes, in both of its vote tables. Thread-safe.
class VoteWriter : public sql::BatchWriter {
  public:
    // -- in the caller's transaction: the rows without their counts -----------------------------
    /// Sets one vote; counts are the caller's to move by value - previous. Refuses tables whose
    /// counts are kept elsewhere (check_place).
    virtual Result<Cast> set(sql::Connection& connection, const Ballot& ballot) = 0;
    /// Sets several, sorted by (item, user), several of one user for one item as if one after the
    /// other. Fills in each write's cast or, if the dialect can tell which vote was refused and
    /// go on, its error; an error returned is of them all. Does not look at the place.
    virtual Result<void> set_all(sql::Connection& connection,
                                 std::span<QueuedVote* const> votes) = 0;

    // -- in transactions of their own: the rows and their counts --------------------------------
    /// strategy slotted: a vote and its slot's cell in one statement. nullopt if it takes more
    /// than one statement; nothing was done then.
    virtual Result<std::optional<Cast>> cast(sql::Database& database, const Ballot& ballot,
                                             std::int64_t slot, Deadline deadline);
    /// A batch of the other strategies. A writer that commits by itself counts in the journal, and
    /// tells `appended` after each commit. Cache: the batch is QueuedCachedVote, which it fills in;
    /// it leaves to a later turn (Fate::deferred) those that it marks as item_by_item. A database in
    /// this process does not commit by itself: a statement costs no round trip there, so
    /// GroupVoteWriter goes item by item. Its rows alone are written here.
    Result<void> write(sql::Connection& connection, Batch batch, sql::BatchTurn&) override;
};

/// A batch's votes, which are its writes, by item and user; stable, so that several of one user for
/// one item stay in the order in which they came.
std::vector<QueuedVote*> sorted_votes(std::span<const std::shared_ptr<sql::QueuedWrite>> batch);

/// BatchWriter::find_applied() for votes, each by its row:
///
///   no row, or an older version   nothing was applied
///   the value                     applied. Cast::previous is the row's. A vote that was there before
///                                 also counts as changed: the row does not name its writer
///   a newer version               applied, and answered as for any older vote: not changed
///   a vote without a user         the row's vote stands
///   another value                 unknown: a later vote of the same user may have replaced it
///
/// Tells `appended` how many were applied.
Result<std::vector<sql::BatchWriter::Found>> find_applied_votes(
    sql::Connection& connection, const Layout& layout,
    std::span<const std::shared_ptr<sql::QueuedWrite>> batch, const NoteAppended& appended);

/// write_behind, in the transaction that writes them: holds stream_fence until its end, and takes the
/// votes out that were taken under another one. `votes` have a fence, or none of them.
Result<void> keep_within_fence(sql::Connection& connection, const Layout& layout,
                               std::vector<QueuedVote*>& votes);

/// The users' votes and the votes without a user, each in their present order.
std::pair<std::vector<QueuedVote*>, std::vector<QueuedVote*>> by_table(
    std::span<QueuedVote* const> votes);

/// Adds the vote's item and user to a bare "FOREIGN KEY constraint failed", if it is this vote
/// that the database refused. `missing`: "item" or "user", whichever key it was, or empty.
Error explain_refusal(Error error, const Ballot& ballot, std::string_view missing = {});

}  // namespace hotcount
