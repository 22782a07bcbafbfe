// Votes: one user, one vote per item, and a count that is exact at every commit (with strategy
// cached: after a drain).
//
//   item   (id, vote_count)                                  the application's own table
//   vote   (item_id, user_id, val, prev, version)            one row per user and item; val 0 is
//                                                            a retracted vote, rows are not deleted
//   vote_anonymous (item_id, op_id, val, prev, version)      votes without a user
//   vote_cell (item_id, slot, n, ver)                        the count, in cells; strategies
//                                                            slotted and batched. Slot -2, with
//                                                            every strategy: an opening balance,
//                                                            which is counted with the votes
//   vote_journal (item, diff)                                changes of counts that are not yet in
//                                                            a cell: batched on PostgreSQL and
//                                                            MariaDB. A fold adds them to the cell
//                                                            of slot -1 and copies the count to
//                                                            item.vote_count
//   vote_count                                               a view: (item, n), exact counts
//   vote_live                                                a view: the votes with val <> 0;
//                                                            user_id is NULL without a user
//   vote_sync, vote_recount                                  strategy cached: see
//                                                            docs/explanation/cached.md
//
// A vote is a state, not an event: cast sets it, retract sets it to 0, and doing either again
// changes nothing. So every call but toggle may be retried after any failure, an unknown outcome
// included. cast returns after the commit (strategy write_behind: after Redis has the vote).
// Thread-safe. Calls block, except those whose names end in _async.
//
// Example, the body of a function that returns Result<void>:
//
//   @code
//   HOTCOUNT_TRY_ASSIGN(const auto database, sql::open_database("sqlite:///example.db"));
//   HOTCOUNT_TRY_ASSIGN(const auto votes, Votes::make(database));
//   HOTCOUNT_TRY(votes->create_tables());
//   const sql::Id item = 7;
//   HOTCOUNT_TRY(votes->add_items({&item, 1}));
//   HOTCOUNT_TRY_ASSIGN(const Cast cast, votes->cast({.item = item, .user = 1}));
//   std::cout << cast.counted << ' ' << cast.changed << '\n';  // 1 1
//   HOTCOUNT_TRY_ASSIGN(const Count count, votes->count(item));
//   std::cout << count.value << '\n';  // 1
//   @endcode
#pragma once

#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/detail/sql/group_commit.hpp>
#include <hotcount/detail/votes/sync_worker.hpp>
#include <hotcount/detail/votes/votes_stats.hpp>
#include <hotcount/memory.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace hotcount {

enum class VoteStrategy : std::uint8_t {
    naive,    ///< One transaction per vote; it updates the item's one row.
    slotted,  ///< One transaction per vote; it updates one of the item's cells.
    batched,  ///< Group commit: concurrent votes share a transaction; one update per item in it.
    cached,   ///< Votes in SQL, counted in memory or Redis; workers save the counts (sync_worker).
    write_behind,  ///< Votes in Redis; workers write them to SQL as batched does (sync_worker).
};
std::string_view to_string(VoteStrategy strategy);

enum class IdType : std::uint8_t { integer, text, uuid };

/// What to do with a vote for an item that has no row.
enum class MissingItem : std::uint8_t {
    refuse,  ///< An integrity error: the item table is the application's.
    create,  ///< Insert the item's row with the vote.
};

/// What create_tables() does with an item whose stored count is not the sum of its votes, when it
/// first counts the tables. For a stored count of 0 or NULL it counts the item's votes.
enum class ExistingCounts : std::uint8_t {
    refuse,  ///< A config error that says how many items differ; nothing is changed.
    keep,    ///< The difference is recorded as the item's opening balance, once and for good: it is
             ///< part of every count, and reconcile() expects it.
    recount,  ///< Each count becomes the sum of its votes. The old counts are lost.
};

/// Which writes of other programs to the vote table its triggers count: those of an ORM, psql or a
/// cascade. The triggers skip the library's own statements, which change the counts themselves.
/// docs/reference/outside-writes.md lists the writes that no trigger sees.
enum class OutsideWrites : std::uint8_t {
    leave,    ///< Keeps the present triggers; new tables have none.
    none,     ///< Drops the triggers.
    deletes,  ///< Counts deleted rows. It costs votes nothing.
    count,    ///< Counts inserted and updated rows too. Each vote costs a test of its statement.
};
std::string_view to_string(OutsideWrites outside);

struct VotesOptions {
    VoteStrategy strategy{VoteStrategy::batched};
    /// Tables may stand in a schema (in MySQL a database): `app.item`. The tables beside the vote
    /// table are in its schema. A name that has a dot itself stands in quotation marks:
    /// `app."my.item"`. SQLite takes no schema.
    std::string item_table{"item"};
    std::string item_id{"id"};
    /// Empty: the item table has no column for counts. They live in cells, with batched and slotted
    /// only, and plain SQL reads them from the view {vote_table}_count.
    std::string item_count{"vote_count"};
    /// Also names {vote_table}_cell, _anonymous, _live, _count, _meta and _journal, and on
    /// PostgreSQL the journal's index {vote_table}_by_item. Only exact counts read the index. An
    /// application without them may drop it; votes of many items are about 10 % faster then.
    std::string vote_table{"vote"};
    std::string vote_item{"item_id"};
    std::string vote_user{"user_id"};
    /// The columns of a vote's value, of its value before the last change, and of its version
    /// (which may be NULL), in both vote tables.
    std::string vote_value{"val"};
    std::string vote_previous{"prev"};
    std::string vote_version{"version"};
    IdType item_type{IdType::integer};
    IdType user_type{IdType::integer};
    MissingItem missing_item{MissingItem::refuse};
    /// Cells per item for the slotted strategy, 1 to 10,000.
    std::int64_t slots{100};
    /// For batched and cached. The other strategies use only max_queue and workers, for their
    /// _async calls; a call of many votes takes no place in that queue.
    sql::GroupCommitOptions commit{};
    /// The vote tables that create_tables() makes reference the item table. False: the strategies
    /// still refuse a vote for an item that has no row, an item's votes stay when its row is
    /// deleted, and voters do not take the key's shared lock on the item's row.
    bool foreign_key{true};
    /// batched on the servers: the least pause between two folds, which bring item.vote_count up
    /// to date, 10 ms to 1 h; one for all processes. Shorter: vote_count lags less, and the
    /// database folds more often. Longer: exact reads sum more journal rows. A process that votes
    /// folds sooner once its exact reads have summed 20,000 rows, but not within 20 ms of the last
    /// fold.
    Duration fold_interval{std::chrono::seconds{1}};

    /// The URL of a replica of the database, for reads that may be stale: Consistency::cached.
    /// Empty: none. A config error with strategy cached, with SQLite, and for a URL that is wrong
    /// or of another kind of database. If the replica is unreachable, behind or of another
    /// database, the caller gets no error: the primary answers within the same deadline, and
    /// stats() counts it.
    std::string read_url{};
    /// The maximum age of an answer of the replica, 0.1 s to 1 h; the primary answers if it would
    /// be older. While any process reads the replica, one of them writes a mark to vote_meta on the
    /// primary every quarter of it: an answer is as old as the last mark that the replica has.
    /// Longer: fewer marks, and older counts. Shorter: the primary answers after a shorter lag.
    Duration read_max_lag{std::chrono::seconds{10}};

    // The rest is for cached; max_age also for write_behind and for batched with a cache; page,
    // interval, workers and max_pending for write_behind. Other strategies ignore it.
    /// cached, write_behind: how long this object uses the tables' id before it reads it again. A
    /// count in the cache does not age, because votes update it there. batched with a cache: how
    /// long a copy lives after the fold that published it, and so how long a count may lack votes
    /// if a later fold could not reach the cache. Longer: fewer reads of SQL.
    Duration max_age{std::chrono::seconds{30}};
    /// write_behind: the maximum of waiting votes in each of the 16 Redis streams that items are
    /// spread over, 1 to 500,000; about 80 bytes each. A vote beyond it fails with a capacity error
    /// and is not applied.
    std::size_t max_pending{100'000};
    /// How long a count stays in the cache after its item's last vote. Longer: more memory, fewer
    /// fills from SQL.
    Duration retention{std::chrono::seconds{600}};
    /// Counts that a worker reads and saves in one transaction, 1 to 100,000. More: fewer commits,
    /// and a longer wait for voters meanwhile. write_behind: votes, at most 5,000.
    std::size_t page{1000};
    /// The pause of a worker between two rounds, and so the lag of item.vote_count.
    Duration interval{std::chrono::seconds{1}};
    /// Threads of one SyncWorker, 1 to 64.
    std::size_t workers{2};

    /// The clock of Count::as_of.
    std::shared_ptr<const Clock> clock{system_clock()};
};

/// A vote to cast; value 0 retracts. A value is -2147483647 to 2147483647, so that no sum of an
/// item's votes leaves 64 bits. Ids have the types of the options item_type and user_type: text is
/// UTF-8 of at most 1,000 bytes without NUL, a UUID its canonical lower-case text. Another value or
/// id is a config error, and nothing is sent.
struct Ballot {
    sql::Id item;
    sql::Id user;
    std::int64_t value{1};
    /// The vote is applied only if this is higher than the version of the vote's row.
    std::optional<std::int64_t> version{};
    /// The vote has no user: `user` is the op_id of this vote (Ballot::anonymous).
    bool by_op_id{false};
    /// Asks for Cast::count. cached: the increment in Redis or memory returns it; if the item's
    /// hash there is new, SQL sums the votes. The other strategies read it after the commit,
    /// because a transaction does not see concurrent votes: one exact statement, which concurrent
    /// calls share (write_behind: and one call of Redis).
    bool with_count{false};

    /// A vote without a user. The first vote under an op_id for an item is final, so the call may
    /// be retried; a later one with another value returns the first. It cannot be retracted. A
    /// config error unless op_id is UTF-8 of 1 to 255 characters without NUL, and value is not 0.
    static Result<Ballot> anonymous(sql::Id item, std::string op_id, std::int64_t value = 1);
};

struct Count {
    std::int64_t value;  ///< SUM(val) over the item's votes, plus its opening balance.
    /// The value agrees with the votes committed at as_of; rows of other programs are counted as
    /// OutsideWrites says. False once this object has found an uncounted cascade or a wrong count
    /// (create_tables(), migration(), stats(), a dry reconcile()).
    bool exact;
    /// The time of the read. Of a cached copy: the time of the fold that counted it. Of a replica:
    /// a time for which it has every vote acknowledged before.
    WallTime as_of;
    std::string source;  ///< "sql", "cache" or "replica".
    /// Votes acknowledged but not yet in value. write_behind: the votes in the item's stream, which
    /// other items share, so an upper bound; -1 if Redis did not answer.
    std::int64_t pending;
};

/// The outcome of a cast or retract.
struct Cast {
    bool counted;           ///< The user's vote counts now: value is not 0.
    bool changed;           ///< This call changed the vote. A repeat or an older version does not.
    std::int64_t previous;  ///< The vote before this call, 0 for none.
    std::int64_t value;     ///< The vote now.
    /// write_behind: the vote waits to be written to SQL. Its effect is not known yet: `changed` is
    /// false and `previous` is 0.
    bool pending{false};
    /// The item's count, this vote included, if Ballot::with_count asked for it; write_behind: the
    /// count in SQL, without this vote while it waits. Null also if the count could not be read
    /// before the deadline; the vote is stored in each case. A pointer, because a batch holds many
    /// Casts, most of them without a count.
    std::shared_ptr<const Count> count{};
};

/// A user whose vote counts, and the vote.
struct Voter {
    sql::Id user;
    std::int64_t value;
};

/// An item's votes by sign, including votes without a user, without the opening balance.
struct Tally {
    std::int64_t up;     ///< Votes above 0.
    std::int64_t down;   ///< Votes below 0.
    std::int64_t score;  ///< The sum of their values.
};

/// An item and its exact count.
struct ItemCount {
    sql::Id item;
    std::int64_t count;
};

/// The outcome of erase_user().
struct Erased {
    std::int64_t votes;  ///< Deleted votes; rows of retracted votes are deleted but not counted.
    /// If no index begins with the user: the index that avoids the scan of the whole table.
    std::string missing_index;
};

/// An item whose stored count differed from its votes, or an orphan: votes, or an opening balance,
/// of an item that has no row.
struct Drift {
    sql::Id item;
    std::int64_t counted;  ///< The stored count.
    std::int64_t actual;   ///< The sum of the votes, plus the opening balance.
    /// The item has no row. reconcile() corrects its count like others, and reports it each time;
    /// its votes and opening balance, which cannot be restored, stay until remove_item().
    bool orphan{false};
};

/// The progress of a reconcile() after a page.
struct ReconcileProgress {
    /// The page's last item. All items up to it are done: a new call may continue with `after`.
    /// Empty if items were named, and during the search for orphans.
    std::optional<sql::Id> last;
    std::size_t items;   ///< Items read so far.
    std::size_t drifts;  ///< Drifts found so far.
};

struct ReconcileOptions {
    bool dry_run{false};
    /// Begins behind this item, where an earlier call was interrupted. Not if items are named.
    std::optional<sql::Id> after{};
    /// Called after each page, in the caller's thread. If it returns false, reconcile() ends and
    /// returns the drifts found so far.
    std::function<bool(const ReconcileProgress&)> progress{};
};

struct FlushReport {
    /// Items whose vote_count was brought up to date. write_behind: votes that waited when the call
    /// began and are in SQL now.
    std::int64_t acked;
    /// Items whose vote_count was not brought up to date: another transaction has locked them until
    /// the deadline, or the database refuses them. write_behind: votes that are not in SQL, or, if
    /// all are, such items.
    std::int64_t pending;
    std::int64_t at_risk;  ///< Acknowledged votes that a crash now could lose.
};

/// The guarantee of an acknowledgement, in words for people and in flags for tools.
struct Contract {
    std::string strategy;
    std::string acknowledged;  ///< The state of a vote when cast returns.
    std::string may_lose;      ///< The votes that may be lost, and when.
    /// An acknowledged vote is in SQL and survives kill -9 of this process. False if it may be in
    /// Redis alone.
    bool durable;
    bool exact;  ///< count() equals the committed votes at all times.
};

/// The source of a count. `cached`: the cache if there is one, else the replica of
/// VotesOptions::read_url, else SQL. `exact`: SQL (strategy cached: the sum of the votes). Without
/// cache and replica both are exact. batched: a count from the cache, or read to fill it, has the
/// votes that folds have counted; voters may not see their own vote in it until the next fold.
enum class Consistency : std::uint8_t { cached, exact };

/// The cache: the counts of `cached`, the copies of counts of `batched` on a server, or the waiting
/// votes of `write_behind` (Redis only). A memory store serves one process. If a second process
/// votes for the same items: with cached the workers of both recount them again and again; with
/// batched copies lack its votes, for max_age at most.
using VoteCache =
    std::variant<std::monostate, std::shared_ptr<memory::Store>, std::shared_ptr<redis::Client>>;

/// The SQL that create_tables() runs in an empty database, made without a connection. It does
/// nothing if the tables exist. A config error for options that make() refuses.
Result<std::string> votes_schema(sql::Dialect dialect, const VotesOptions& options = {});

class Votes {
  public:
    /// `cache`: the strategies cached and write_behind need one; batched keeps copies of its counts
    /// there for count() (on SQLite it reads the rows instead). A config error with another
    /// strategy.
    static Result<std::shared_ptr<Votes>> make(std::shared_ptr<sql::Database> database,
                                               VotesOptions options = {}, VoteCache cache = {});
    virtual ~Votes() = default;

    /// Creates the missing tables, views and indexes. Idempotent; several processes may call it at
    /// once; takes no lock if nothing is missing. If a strategy that stores its counts elsewhere
    /// counted the tables before, moves the counts while neither votes nor folds run; from then on
    /// processes of that strategy are refused with an error that says so. Tables in a removed
    /// format are a config error.
    /// `existing`: for tables that hotcount has not counted before, with items whose count (NULL is
    /// 0) is not the sum of their votes; ignored for other tables. A refusal creates and changes
    /// nothing (MariaDB, MySQL: unless a count changes meanwhile; empty tables may stay then). The
    /// first call holds a lock on items and votes for as long as a scan of both takes.
    /// `outside`: triggers of another form are replaced or dropped; earlier writes of other
    /// programs are left to reconcile(). A config error, before anything changes, if the role may
    /// not create triggers, if a foreign trigger has the name, or if the database runs no triggers
    /// for a cascade that reaches the votes.
    virtual Result<void> create_tables(ExistingCounts existing = ExistingCounts::refuse,
                                       OutsideWrites outside = OutsideWrites::leave,
                                       Timeout timeout = {}) = 0;
    /// The SQL of votes_schema() with the options of this object.
    virtual std::string schema() const = 0;
    /// The statements that these tables still need, for the dialect's own client (psql, mariadb,
    /// sqlite3). Empty if nothing is missing: create_tables() then changes nothing and needs no
    /// right to. Their order lets the application run meanwhile; comments name the statements that
    /// it waits for, and cascades that no trigger counts. After a failure of the script a new call
    /// returns the rest. Changes nothing itself. A config error names a table and a column that no
    /// statement can mend, and the remedy. `existing`, `outside`: as for create_tables().
    virtual Result<std::string> migration(ExistingCounts existing = ExistingCounts::refuse,
                                          OutsideWrites outside = OutsideWrites::leave,
                                          Timeout timeout = {}) = 0;
    /// Adds rows to the item table, in one transaction; existing rows are not changed.
    virtual Result<void> add_items(std::span<const sql::Id> items, Timeout timeout = {}) = 0;

    virtual Result<Cast> cast(const Ballot& ballot, Timeout timeout = {}) = 0;
    /// Results by index: a refused ballot does not affect the others. batched: as few transactions
    /// as max_batch allows, and about 2 x log2(max_batch) more for a ballot that the database
    /// refuses; other strategies: one per ballot. The timeout is for the whole call, which returns
    /// at most 100 ms after it: ballots that were not sent by then were not applied.
    virtual std::vector<Result<Cast>> cast_many(std::span<const Ballot> ballots,
                                                Timeout timeout = {}) = 0;
    virtual Result<Count> count(const sql::Id& item, Consistency consistency = Consistency::cached,
                                Timeout timeout = {}) = 0;
    /// The counts by index, of one snapshot; counts in a cache are each as the cache has them.
    virtual Result<std::vector<Count>> count_many(std::span<const sql::Id> items,
                                                  Consistency consistency = Consistency::cached,
                                                  Timeout timeout = {}) = 0;

    // -- queries: they read the committed votes in SQL, with every strategy. With
    // Consistency::cached and read_url the replica may answer, up to read_max_lag late. -----------

    /// The user's vote for the item, 0 for none.
    virtual Result<std::int64_t> get(const sql::Id& item, const sql::Id& user,
                                     Timeout timeout = {}) = 0;
    /// The user's votes for the items, by index and of one snapshot; a statement for each 512 items
    /// (PostgreSQL: 10,000).
    virtual Result<std::vector<std::int64_t>> get_many(std::span<const sql::Id> items,
                                                       const sql::Id& user,
                                                       Timeout timeout = {}) = 0;
    /// A page of the users whose votes for the item count, ascending by user: the first `limit` (1
    /// to 10,000) that follow `after`. A page that is not full is the last. Reads the vote table's
    /// primary key (item, user); votes without a user are not listed.
    virtual Result<std::vector<Voter>> voters(const sql::Id& item,
                                              const std::optional<sql::Id>& after = {},
                                              std::size_t limit = 100,
                                              Consistency consistency = Consistency::exact,
                                              Timeout timeout = {}) = 0;
    /// Reads all votes for the item in one statement.
    virtual Result<Tally> tally(const sql::Id& item, Consistency consistency = Consistency::exact,
                                Timeout timeout = {}) = 0;
    /// The n (1 to 10,000) items of the highest item.vote_count, with their exact counts, in the
    /// descending order of these. An item whose new votes are not in vote_count yet may be missing.
    /// Scans the item table unless an index begins with vote_count: (vote_count, id).
    virtual Result<std::vector<ItemCount>> top(std::size_t n,
                                               Consistency consistency = Consistency::exact,
                                               Timeout timeout = {}) = 0;
    /// Retracts the vote if it is `value`, which is not 0, and else sets it to `value`, atomically.
    /// NOT idempotent: after outcome_unknown call get() before another toggle(). Every strategy
    /// uses a separate transaction, which does not queue behind votes that are still in progress. A
    /// config error for a ballot with a version or an op_id.
    virtual Result<Cast> toggle(const Ballot& ballot, Timeout timeout = {}) = 0;
    Result<Cast> toggle(const sql::Id& item, const sql::Id& user, std::int64_t value = 1,
                        Timeout timeout = {}) {
        return toggle(Ballot{.item = item, .user = user, .value = value}, timeout);
    }

    // -- cleaning: in pages, each a transaction with a timeout of its own. After any error
    // committed pages stay, all counts are right, and a repeated call continues with the rest. ----

    /// Deletes an item's votes, journal rows, cells, opening balance and cached copies, and sets
    /// its vote_count to 0. The last step locks folds and the item's row, so that each vote counts
    /// before it or after it. With `delete_row` that step also deletes the row, so that no vote can
    /// come between. An item created again begins at 0. Returns the number of deleted votes. Works
    /// for items without a row too. A cached count of another process follows within max_age
    /// (cached: with the next round of a worker).
    virtual Result<std::int64_t> remove_item(const sql::Id& item, bool delete_row = false,
                                             Timeout timeout = {}) = 0;
    /// Deletes all votes of a user, and takes them out of the counts in the same transactions
    /// (cached: these note the items for a recount, at once or by a worker). Votes that the user
    /// casts meanwhile may stay. Without an index that begins with the user it scans the whole vote
    /// table, 10,000 rows at a time. The versions are deleted too: a vote cast again counts, even
    /// with an old version.
    virtual Result<Erased> erase_user(const sql::Id& user, Timeout timeout = {}) = 0;
    /// Deletes retracted votes with a version lower than `before`, or without one, and returns
    /// their number. Changes no count. Scans the vote table, 10,000 rows at a time. Without the row
    /// an older version is no longer refused: `before` must be older than any retry.
    virtual Result<std::int64_t> prune(std::int64_t before, Timeout timeout = {}) = 0;

    /// Finds counts that differ from the votes (of all items if none are named) and, unless
    /// dry_run, corrects them. In pages of at most 512 items, fewer if they have many votes, each
    /// with a timeout of its own. A page is read without a lock; items that differ are read again
    /// and corrected in a transaction that makes other reconciles wait. batched and slotted on the
    /// servers: no voter waits for it. Finds orphans too, after all items. After an error committed
    /// pages stay, and the message names the item to continue after.
    virtual Result<std::vector<Drift>> reconcile(std::optional<std::span<const sql::Id>> items,
                                                 const ReconcileOptions& how,
                                                 Timeout timeout = {}) = 0;
    Result<std::vector<Drift>> reconcile(std::optional<std::span<const sql::Id>> items,
                                         bool dry_run = false, Timeout timeout = {}) {
        ReconcileOptions how;
        how.dry_run = dry_run;
        return reconcile(items, how, timeout);
    }
    /// Brings item.vote_count up to date if votes do not (batched and slotted on the servers,
    /// cached; slotted on SQLite). Waits until the deadline for items that other transactions have
    /// locked. If nothing is pending, item.vote_count has every vote acknowledged before the call,
    /// and this process folds nothing until there are new votes. After an error the rest of the
    /// journal is not folded: call it again.
    virtual Result<FlushReport> flush(Timeout timeout = {}) = 0;
    /// Tells this process that the caller's own SQL has committed `rows` journal rows, as
    /// hotcount.integrations.sqlalchemy does: it folds them as it folds those of its own votes.
    /// Never waits. Does nothing for strategies without a journal.
    virtual void note_appended(std::size_t rows) = 0;
    /// A new worker, which shares this object's state. A config error if the strategy needs none.
    virtual Result<std::shared_ptr<SyncWorker>> sync_worker() = 0;
    /// Reads the number of waiting journal rows from the database, if there is a journal. If the
    /// database refuses or is late, VotesStats::pending_error says so, and the rest is returned.
    virtual Result<VotesStats> stats(Timeout timeout = {}) = 0;
    /// The next event for a log: the replica of read_url cannot be used (once for each outage), or
    /// folds of this process fail, or work again. Each event is returned once. Without an event it
    /// costs two loads of memory.
    virtual std::optional<VotesEvent> take_event() { return {}; }
    virtual Contract contract() const = 0;
    virtual const VotesOptions& options() const = 0;

    // The same without waiting, by at most commit.workers threads of this object (naive, slotted:
    // twice as many). One of them calls `done`, which delays other calls and must not block. If the
    // call is refused (capacity, closed), the calling thread calls `done` before it returns. A call
    // in progress keeps this object alive; a forked child begins without any.
    //
    // Two votes of one user for one item are applied in the order of their calls.

    virtual void cast_async(const Ballot& ballot, Completion<Cast> done, Timeout timeout = {}) = 0;
    /// The votes are queued in portions: votes of later calls may be applied before the last
    /// portions.
    virtual void cast_many_async(std::span<const Ballot> ballots,
                                 std::function<void(std::vector<Result<Cast>>)> done,
                                 Timeout timeout = {}) = 0;
    virtual void count_async(const sql::Id& item, Completion<Count> done, Timeout timeout = {},
                             Consistency consistency = Consistency::cached) = 0;
    /// Runs `work` in one of these threads, for calls without an _async form. If no thread is free
    /// by the deadline, or max_queue calls wait, it calls `refuse` instead, and `work` never runs.
    virtual void run_async(Deadline deadline, std::function<void(Votes&)> work,
                           std::function<void(Error)> refuse) = 0;
};

}  // namespace hotcount
