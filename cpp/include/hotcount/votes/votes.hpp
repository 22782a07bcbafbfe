// Votes: one user, one vote per item, and a count that is exact at every commit.
//
//   item   (id, vote_count)                                  the application's own table
//   vote   (item_id, user_id, val, prev, version)            one row per user and item; val 0 is
//                                                            a retracted vote, rows are not deleted
//   vote_cell (item_id, slot, n, ver)                        the count, in cells; strategies
//                                                            slotted and batched
//   vote_live                                                a view: the votes with val <> 0
//
// A vote is a state, not an event: cast sets it, retract sets it to 0, and doing either again
// changes nothing. So every call may be retried after any failure, an unknown outcome included.
// cast returns after the commit. Thread-safe; blocking.
#pragma once

#include <cstdint>
#include <hotcount/base/clock.hpp>
#include <hotcount/base/result.hpp>
#include <hotcount/sql/database.hpp>
#include <hotcount/sql/group_commit.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount {

enum class VoteStrategy : std::uint8_t {
    naive,    ///< The seed's: one transaction per vote; it updates the item's one row.
    slotted,  ///< One transaction per vote; it updates one of the item's cells.
    batched,  ///< Group commit: concurrent votes share a transaction; one update per item in it.
};
std::string_view to_string(VoteStrategy strategy);

enum class IdType : std::uint8_t { integer, text, uuid };

/// What to do with a vote for an item that has no row.
enum class MissingItem : std::uint8_t {
    refuse,  ///< An integrity error: the item table is the application's.
    create,  ///< Insert the item's row with the vote.
};

struct VotesOptions {
    VoteStrategy strategy{VoteStrategy::batched};
    std::string item_table{"item"};
    std::string item_id{"id"};
    std::string item_count{"vote_count"};
    std::string vote_table{"vote"};  ///< Also names {vote_table}_cell and {vote_table}_live.
    std::string vote_item{"item_id"};
    std::string vote_user{"user_id"};
    IdType item_type{IdType::integer};
    IdType user_type{IdType::integer};
    MissingItem missing_item{MissingItem::refuse};
    /// Cells per item for the slotted strategy, 1 to 10,000.
    std::int64_t slots{100};
    /// For batched; ignored by the others.
    sql::GroupCommitOptions commit{};
    /// Where Count::as_of comes from.
    std::shared_ptr<const Clock> clock{system_clock()};
};

/// A vote to cast; value 0 retracts.
struct Ballot {
    sql::Id item;
    sql::Id user;
    std::int64_t value{1};
    /// Applied only where higher than the version the vote's row has.
    std::optional<std::int64_t> version{};
};

/// What a cast or retract came to.
struct Cast {
    bool counted;           ///< The user's vote counts now: value is not 0.
    bool changed;           ///< This call changed it. A repeat, or an older version, does not.
    std::int64_t previous;  ///< The vote before this call, 0 for none.
    std::int64_t value;     ///< The vote now.
};

struct Count {
    std::int64_t value;    ///< SUM(val) over the item's votes; their number where all are 1.
    bool exact;            ///< Agrees with the votes committed at as_of.
    WallTime as_of;        ///< When it was read.
    std::string source;    ///< "sql".
    std::int64_t pending;  ///< Votes acknowledged but not yet in value.
};

/// An item whose stored count differed from its votes.
struct Drift {
    sql::Id item;
    std::int64_t counted;  ///< What the count said.
    std::int64_t actual;   ///< What the votes say.
};

struct FlushReport {
    std::int64_t acked;    ///< Items whose vote_count was brought up to date.
    std::int64_t pending;  ///< Items not reached before the deadline.
    std::int64_t at_risk;  ///< Acknowledged votes that a crash now could lose.
};

/// What an acknowledgement means, in words and in facts that tools check.
struct Contract {
    std::string strategy;
    std::string acknowledged;  ///< When cast returns, ...
    std::string may_lose;      ///< What may be lost, and when.
    bool durable;              ///< An acknowledged vote survives kill -9 of this process.
    bool exact;                ///< count() equals the committed votes at all times.
};

class Votes {
  public:
    static Result<std::shared_ptr<Votes>> make(std::shared_ptr<sql::Database> database,
                                               VotesOptions options = {});
    virtual ~Votes() = default;

    /// Creates what is missing; idempotent. Where the tables were counted by a strategy that keeps
    /// its counts elsewhere, reconciles them.
    virtual Result<void> create_tables(Timeout timeout = {}) = 0;
    /// The SQL that create_tables runs.
    virtual std::string schema() const = 0;
    /// Adds rows to the item table, in one transaction; those that exist stay as they are.
    virtual Result<void> add_items(std::span<const sql::Id> items, Timeout timeout = {}) = 0;

    virtual Result<Cast> cast(const Ballot& ballot, Timeout timeout = {}) = 0;
    /// Results by index. batched: as few transactions as max_batch allows; else one per ballot.
    virtual std::vector<Result<Cast>> cast_many(std::span<const Ballot> ballots,
                                                Timeout timeout = {}) = 0;
    virtual Result<Count> count(const sql::Id& item, Timeout timeout = {}) = 0;
    /// From one snapshot.
    virtual Result<std::vector<Count>> count_many(std::span<const sql::Id> items,
                                                  Timeout timeout = {}) = 0;
    /// Finds counts that disagree with the votes (of all items where none are named) and, unless
    /// dry_run, sets them right in the same transaction.
    virtual Result<std::vector<Drift>> reconcile(std::optional<std::span<const sql::Id>> items,
                                                 bool dry_run = false, Timeout timeout = {}) = 0;
    /// Brings item.vote_count up to date where the strategy does not keep it so itself (slotted).
    virtual Result<FlushReport> flush(Timeout timeout = {}) = 0;
    virtual Contract contract() const = 0;
    virtual const VotesOptions& options() const = 0;
};

}  // namespace hotcount
