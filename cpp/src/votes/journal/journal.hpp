// The journal on a server: counted votes that are not in a cell yet.
//
//   a voter   appends (item, difference) in the transaction of the vote, and locks no count
//   a fold    deletes a page of rows, adds their sums to the cells of slot kFoldSlot, and copies
//             the sum of all cells to item.vote_count; if the item's row is locked, it appends
//             (item, 0) for a later fold
//   a count   is the sum of an item's cells and its journal rows, in one statement
//
// A fold is one transaction, one at a time for all processes, and only while the mark says that the
// counts are in the journal.
#pragma once

#include <hotcount/sql.hpp>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "votes/tables/layout.hpp"

namespace hotcount {

/// An item's count after a fold: the sum of all its cells, and a number that grows with each fold
/// of the item, by which caches order their copies.
struct FoldedCount {
    sql::Id item;
    std::int64_t n;
    std::int64_t ver;
};

/// Most rows of one fold. More: fewer transactions, each of which holds items for longer (a page of
/// 2,500 items took 30 to 50 ms).
inline constexpr std::size_t kFoldPage = 20'000;

/// The longest pause after a slow fold. Without it a jump of the clock during a fold, or a stalled
/// server, would stop all folds for hours.
inline constexpr Duration kLongestPause = std::chrono::seconds{60};

/// The pause after a fold is VotesOptions::fold_interval or this many times the fold's duration,
/// whichever is longer: folds take at most a twentieth of the time.
inline constexpr std::int64_t kRest = 20;
/// If exact reads sum many rows, the pause is this or the fold's duration, whichever is longer.
inline constexpr Duration kShortPause = std::chrono::milliseconds{20};

/// The request for one fold.
struct FoldRequest {
    bool due_only{false};             ///< Fold only if the pause since the last fold is over.
    bool hurried{false};              ///< The short pause: see kShortPause.
    std::span<const sql::Id> only{};  ///< The items to fold; all if empty.
    std::span<const sql::Id> but{};   ///< If `only` is empty: items to leave out.
    std::size_t most{kFoldPage};      ///< Rows.
    /// With one item in `only`: waits up to 50 ms for its row instead of leaving it as held. For
    /// items that voters lock in turns (Journal::may_starve()).
    bool wait_for_item{false};
};

/// Rows of the journal, by ids that grow in the order of the appends.
struct JournalRange {
    std::int64_t first;
    std::int64_t last;
};

struct FoldedPage {
    enum class Outcome : std::uint8_t {
        folded,     ///< Done; perhaps there was nothing to fold.
        taken,      ///< Another session folds or moves the counts.
        not_due,    ///< See FoldRequest::due_only.
        elsewhere,  ///< The counts of these tables are not in the journal.
    };
    Outcome outcome{Outcome::folded};
    std::size_t rows{0};                ///< Rows deleted from the journal.
    bool more{false};                   ///< The page was full.
    std::vector<FoldedCount> counts{};  ///< The items of the page.
    /// Items whose row was locked, and of FoldRequest::only also those of which the fold found locked
    /// journal rows alone: item.vote_count follows later.
    std::vector<sql::Id> held{};
    /// Of a fold of all items whose page was not full: committed rows that it did not find or could
    /// not lock, if the database skips locked rows. Rows locked by others than voters stay there.
    std::optional<JournalRange> left{};
    Duration due_in{0};  ///< After not_due: the rest of the pause.
};

/// The rows that wait in the journal.
struct JournalBacklog {
    std::int64_t rows;      ///< Rows with a difference, and requests to update item.vote_count.
    std::int64_t items;     ///< Items with such rows.
    Duration since_folded;  ///< Time since the last fold that found rows began.
};

/// The state of the journal, for a process that has no rows of its own in it.
struct JournalLook {
    bool others_append;     ///< Triggers append rows for other writers (outside_writes).
    bool has_rows;          ///< Rows of any process.
    Duration since_folded;  ///< As in JournalBacklog; negative if the server's clock was set back.
};

/// Thread-safe: the statements over one set of tables.
class Journal {
  public:
    virtual ~Journal() = default;

    /// Whether voters share the lock of an item's row, and so may keep folds from it without end.
    virtual bool may_starve() const { return false; }
    /// One fold of at most a page of rows.
    virtual Result<FoldedPage> fold(const FoldRequest& request, Deadline deadline) = 0;
    /// A fold as part of the caller's transaction.
    virtual Result<FoldedPage> fold_in(sql::Connection& connection, const FoldRequest& request) = 0;
    /// Appends (item, 0) for each of these items that exists, so that a fold brings its count up to
    /// date: voters have changed its cells. Nothing if the counts are elsewhere.
    virtual Result<void> ask(std::span<const sql::Id> items, Deadline deadline) = 0;
    /// Items that have rows, at most a page's.
    virtual Result<std::vector<sql::Id>> items(Deadline deadline) = 0;
    virtual Result<JournalBacklog> backlog(Deadline deadline) = 0;
    /// One statement that reads a row of the journal at most, and locks nothing.
    virtual Result<JournalLook> look(Deadline deadline) = 0;
    /// Gives the room of rows taken out back to voters, if the database leaves that to be asked
    /// for and the role may.
    virtual Result<void> tidy(Deadline deadline) = 0;
};

// -- shared by the dialects ---------------------------------------------------------------------

/// The statements `backlog` and `look`. `number`: the type of CAST(... AS type) for an integer.
sql::Statements backlog_statements(const VoteNames& names, const sql::Grammar& grammar,
                                   const std::string& number);
Result<JournalBacklog> read_backlog(sql::Database& database, const sql::Statement& statement,
                                    Deadline deadline);
Result<JournalLook> read_look(sql::Database& database, const sql::Statement& statement,
                              Deadline deadline);
Result<std::vector<sql::Id>> read_items(sql::Database& database, const sql::Statement& statement,
                                        Deadline deadline);
std::int64_t microseconds_of(Duration time);

}  // namespace hotcount
