// The journal on a server: what votes have counted and no cell has yet.
//
//   a voter   appends (item, difference) in the transaction of his votes, and locks no count
//   a fold    takes a page of rows out, adds their sums to the cells of slot kFoldSlot, copies the
//             sum of all cells to item.vote_count if the item's row is free, and appends
//             (item, 0) if somebody holds it, so that a later fold comes back
//   a count   is the sum of an item's cells and its journal rows, in one statement
//
// A fold is one transaction, one at a time for all processes, and only while the mark says that the
// counts are in the journal.
#pragma once

#include <hotcount/sql.hpp>
#include <memory>
#include <span>
#include <vector>

#include "votes/tables/layout.hpp"

namespace hotcount {

/// An item's count as a fold left it: the sum of all its cells, and a number that is higher with
/// each fold of the item, which caches tell copies by.
struct FoldedCount {
    sql::Id item;
    std::int64_t n;
    std::int64_t ver;
};

/// Most rows of one fold. More: fewer transactions, each of which holds items for longer (a page of
/// 2,500 items took 30 to 50 ms).
inline constexpr std::size_t kFoldPage = 20'000;

/// The longest pause after a slow fold. Without it a clock that jumped forward during a fold, or a
/// server that stood still, would stop all folds for hours.
inline constexpr Duration kLongestPause = std::chrono::seconds{60};

/// The pause after a fold is VotesOptions::fold_interval or so many times what the fold took,
/// whichever is longer: folds take a twentieth of the time at most.
inline constexpr std::int64_t kRest = 20;
/// If exact reads sum many rows, the pause is this or what the fold took, whichever is longer.
inline constexpr Duration kShortPause = std::chrono::milliseconds{20};

/// What one fold is to do.
struct FoldRequest {
    bool due_only{false};             ///< Nothing, if the last fold was too recent.
    bool hurried{false};              ///< The pause is the short one: see kShortPause.
    std::span<const sql::Id> only{};  ///< The items to fold; all if empty.
    std::span<const sql::Id> but{};   ///< Else: items to leave alone.
    std::size_t most{kFoldPage};      ///< Rows.
    /// With one item in `only`: waits a moment for its row instead of leaving it as held. For those
    /// that voters hold in turns (Journal::may_starve()).
    bool insist{false};
};

struct FoldedPage {
    enum class Outcome : std::uint8_t {
        folded,     ///< It may have found nothing to fold.
        taken,      ///< Somebody else folds, or moves the counts, at this moment.
        not_due,    ///< See FoldRequest::due_only.
        elsewhere,  ///< The counts of these tables are not in the journal.
    };
    Outcome outcome{Outcome::folded};
    std::size_t rows{0};                ///< Taken out of the journal.
    bool more{false};                   ///< The page was full.
    std::vector<FoldedCount> counts{};  ///< Of the items in it.
    std::vector<sql::Id> held{};        ///< Whose item.vote_count is to follow later.
    Duration due_in{0};                 ///< After not_due: when it is.
};

/// What waits in the journal.
struct JournalBacklog {
    std::int64_t rows;      ///< Also those that only ask for item.vote_count.
    std::int64_t items;     ///< With such rows.
    Duration since_folded;  ///< How long ago the last fold that found rows began.
};

/// The answer to a process that has nothing of its own to fold.
struct JournalLook {
    bool others_append;     ///< Triggers append what others write to the votes (outside_writes).
    bool has_rows;          ///< Of whichever process.
    Duration since_folded;  ///< As JournalBacklog has it; below 0 if the server's clock went back.
};

/// Thread-safe: the statements over one set of tables.
class Journal {
  public:
    virtual ~Journal() = default;

    /// Whether voters, who share an item's row, may keep folds from it for as long as they come.
    virtual bool may_starve() const { return false; }
    /// One fold of at most a page of rows.
    virtual Result<FoldedPage> fold(const FoldRequest& request, Deadline deadline) = 0;
    /// The same as a part of the caller's transaction.
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
