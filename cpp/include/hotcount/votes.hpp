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
//   vote_journal (item, diff)                                what is counted and not yet in a cell:
//                                                            batched on PostgreSQL and MariaDB. A
//                                                            fold adds it to the cell of slot -1 and
//                                                            copies the count to item.vote_count
//   vote_count                                               a view: (item, n), exact counts
//   vote_live                                                a view: the votes with val <> 0;
//                                                            user_id is NULL without a user
//   vote_sync, vote_recount                                  strategy cached: see docs/explanation/cached.md
//
// A vote is a state, not an event: cast sets it, retract sets it to 0, and doing either again
// changes nothing. So every call may be retried after any failure, an unknown outcome included.
// cast returns after the commit (strategy write_behind: after Redis has the vote). Thread-safe; blocking, but for the calls that end in _async.
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

/// What create_tables() does with counts that are in the item table and not in the votes, the first
/// time that it meets the tables. A count of 0 or NULL is none: the item's votes are counted.
enum class ExistingCounts : std::uint8_t {
    refuse,  ///< A config error that says how many items differ; nothing is changed.
    keep,    ///< The difference is recorded as the item's opening balance, once and for good: it is
             ///< part of every count, and reconcile() expects it.
    recount,  ///< The votes are trusted: each count becomes their sum. What was there is lost.
};

/// Which writes of others to the vote table its triggers count: an ORM's, psql's, a cascade's. The
/// library's own statements are told apart and count themselves. docs/reference/outside-writes.md lists what no trigger
/// sees.
enum class OutsideWrites : std::uint8_t {
    leave,    ///< As the tables are; new tables have no triggers.
    none,     ///< Drops the triggers.
    deletes,  ///< Deleted rows. Votes cost what they cost without triggers.
    count,    ///< Inserted and updated rows too. Each vote costs a test of its statement.
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
    /// Also names {vote_table}_cell, _anonymous, _live, _count, _meta and _journal, and on PostgreSQL
    /// the journal's index {vote_table}_by_item. That one is for exact counts: if nobody reads
    /// any, it may be dropped, which makes votes of many items about a tenth faster.
    std::string vote_table{"vote"};
    std::string vote_item{"item_id"};
    std::string vote_user{"user_id"};
    /// The columns of a vote's value, of its value before the last change, and of its version (which
    /// may be NULL). Both vote tables call them so.
    std::string vote_value{"val"};
    std::string vote_previous{"prev"};
    std::string vote_version{"version"};
    IdType item_type{IdType::integer};
    IdType user_type{IdType::integer};
    MissingItem missing_item{MissingItem::refuse};
    /// Cells per item for the slotted strategy, 1 to 10,000.
    std::int64_t slots{100};
    /// For batched and cached. The other strategies use only max_queue and workers, for their calls
    /// that do not wait; a call of many votes needs no room there.
    sql::GroupCommitOptions commit{};
    /// The vote tables that create_tables() makes reference the item table. False: a vote for an
    /// item that has no row is refused by the strategies all the same, and an item's votes stay
    /// when its row is deleted. It spares voters the key's shared lock on the item's row.
    bool foreign_key{true};
    /// batched on the servers: the least pause between two folds, which bring item.vote_count up
    /// to date, 10 ms to 1 h; one for all processes. Shorter: vote_count lags less, and the
    /// database folds more often. Longer: exact reads sum more rows; once those of a process that
    /// votes have summed 20,000, it folds sooner, 20 ms after the last fold at the earliest.
    Duration fold_interval{std::chrono::seconds{1}};

    /// The URL of a replica of the database, for reads that may be stale: Consistency::cached. Empty:
    /// none. A config error with strategy cached, with SQLite, and for a URL that is wrong or of
    /// another kind of database. A replica that is away, behind or another database's is none of the
    /// caller's errors: the primary answers within the same deadline, and stats() counts that.
    std::string read_url{};
    /// How old an answer of the replica may be, 0.1 s to 1 h; the primary answers if it would be
    /// older. While somebody reads there, a mark is written to vote_meta every quarter of it, by one
    /// of all processes: an answer is as old as the last mark that the replica has. Longer: fewer
    /// marks, and older counts. Shorter: the primary answers as soon as the replica is a little late.
    Duration read_max_lag{std::chrono::seconds{10}};

    // For cached, max_age for batched with a cache too; page, interval, workers and max_pending for
    // write_behind; ignored by the others.
    /// cached: how long count() trusts what it knows of the tables before it asks them again. A
    /// count in the cache has no age: votes move it there. batched with a cache: how long a copy
    /// lives after the fold that published it, and so how long a count may lack votes if a later
    /// fold could not reach the cache. Longer: fewer reads of SQL.
    Duration max_age{std::chrono::seconds{30}};
    /// write_behind: most votes that wait in Redis, in each of the 16 streams that items are spread
    /// over, 1 to 500,000; about 80 bytes each. One more is refused with a capacity error, and
    /// nothing was applied.
    std::size_t max_pending{100'000};
    /// How long a count stays in the cache after its item's last vote. Longer: more memory, fewer
    /// fills from SQL.
    Duration retention{std::chrono::seconds{600}};
    /// Counts that a worker looks at and saves at once, 1 to 100,000: one transaction. More: fewer
    /// commits, and a longer wait for voters meanwhile. write_behind: votes, at most 5,000.
    std::size_t page{1000};
    /// The pause of a worker between two rounds: how far item.vote_count lags behind.
    Duration interval{std::chrono::seconds{1}};
    /// Threads of one SyncWorker, 1 to 64.
    std::size_t workers{2};

    /// Where Count::as_of comes from.
    std::shared_ptr<const Clock> clock{system_clock()};
};

/// A vote to cast; value 0 retracts. A value takes -2147483647 to 2147483647, so that no sum of an
/// item's votes leaves 64 bits. Ids are of the types that the options say: text is UTF-8 of at most
/// 1,000 bytes without NUL, a UUID its canonical lower-case text. Another value or id is a config
/// error, and nothing is sent.
struct Ballot {
    sql::Id item;
    sql::Id user;
    std::int64_t value{1};
    /// Applied only if it is higher than the version that the vote's row has.
    std::optional<std::int64_t> version{};
    /// The vote has no user: `user` is text that names this very vote (Ballot::anonymous).
    bool by_op_id{false};
    /// Cast::count is asked for. cached: Redis or memory tells it with the increment; if the item's
    /// hash there is new, SQL sums the votes. The other strategies read it after the commit, because
    /// a transaction does not see votes that commit beside it: one statement, exact, which calls
    /// that wait at the same time share (write_behind: and one call of Redis).
    bool with_count{false};

    /// A vote without a user. The first one cast under an op_id for an item stands for good, so the
    /// call may be retried; one with another value comes to what stands. It cannot be retracted.
    /// A config error unless op_id is UTF-8 of 1 to 255 characters without NUL, and value is not 0.
    static Result<Ballot> anonymous(sql::Id item, std::string op_id, std::int64_t value = 1);
};

struct Count {
    std::int64_t value;  ///< SUM(val) over the item's votes, and its opening balance.
    /// Agrees with the votes committed at as_of. Of rows that others write, those that OutsideWrites
    /// says. False once this object has met a cascade that nothing counts, or a count that differs
    /// (create_tables(), migration(), stats(), a dry reconcile()).
    bool exact;
    /// When it was read. Of a copy: when the fold ran that counted it. Of a replica: all votes that
    /// were acknowledged before are in it.
    WallTime as_of;
    std::string source;  ///< "sql", "cache" or "replica".
    /// Votes acknowledged but not yet in value. write_behind: those that wait in the stream of the
    /// item, other items' too, so at most as many are this item's; -1 if Redis did not answer.
    std::int64_t pending;
};

/// The outcome of a cast or retract.
struct Cast {
    bool counted;           ///< The user's vote counts now: value is not 0.
    bool changed;           ///< This call changed it. A repeat, or an older version, does not.
    std::int64_t previous;  ///< The vote before this call, 0 for none.
    std::int64_t value;     ///< The vote now.
    /// write_behind: the vote waits to be written to SQL. What it changes is not known yet: `changed`
    /// is false and `previous` is 0.
    bool pending{false};
    /// The item's count after this vote, which is in it, if Ballot::with_count asked for it. Count
    /// says where it comes from. Null also if it could not be read before the deadline: the vote
    /// stands all the same. write_behind: the count that SQL has, without this vote while it waits.
    /// A pointer, because batches of votes that do not ask hold many Casts.
    std::shared_ptr<const Count> count{};
};

/// A user whose vote counts, and the vote.
struct Voter {
    sql::Id user;
    std::int64_t value;
};

/// An item's votes by sign, those without a user among them. An opening balance is no vote.
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

/// What erase_user() took out.
struct Erased {
    std::int64_t votes;  ///< Of a value that is not 0; retracted ones went too.
    /// If no index begins with the user: which one would spare the scan of the whole table.
    std::string missing_index;
};

/// An item whose stored count differed from its votes, or an orphan: votes, or an opening balance,
/// of an item that has no row.
struct Drift {
    sql::Id item;
    std::int64_t counted;  ///< What the count said.
    std::int64_t actual;   ///< What the votes say, and the opening balance.
    /// The item has no row. Its count is set right like others; votes and opening balance, which
    /// nobody could make again, stay until remove_item(), and are named each time.
    bool orphan{false};
};

/// How far a reconcile() has come: told after each page.
struct ReconcileProgress {
    /// The page's last item. All items up to it are done, so that `after` may go on from there.
    /// Empty if items were named, and while orphans are looked for.
    std::optional<sql::Id> last;
    std::size_t items;   ///< Looked at so far.
    std::size_t drifts;  ///< Found so far.
};

struct ReconcileOptions {
    bool dry_run{false};
    /// Begins behind that item: where an earlier call was interrupted. Not if items are named.
    std::optional<sql::Id> after{};
    /// Called after each page, in the caller's thread. False: that is enough, what was found so far
    /// is returned.
    std::function<bool(const ReconcileProgress&)> progress{};
};

struct FlushReport {
    /// Items whose vote_count was brought up to date. write_behind: votes that waited when the call
    /// began, and are in SQL.
    std::int64_t acked;
    std::int64_t pending;  ///< Items (write_behind: such votes) not reached before the deadline.
    std::int64_t at_risk;  ///< Acknowledged votes that a crash now could lose.
};

/// What an acknowledgement means, in words and in facts that tools check.
struct Contract {
    std::string strategy;
    std::string acknowledged;  ///< When cast returns, ...
    std::string may_lose;      ///< What may be lost, and when.
    /// An acknowledged vote is in SQL and survives kill -9 of this process. False where it may be in
    /// Redis alone.
    bool durable;
    bool exact;  ///< count() equals the committed votes at all times.
};

/// Where a count comes from: the cache if there is one, or SQL (strategy cached: summed from the
/// votes). Without a cache both are exact. batched: a count from the cache, or read to fill it, has
/// what folds have counted; a voter may not see his own vote in it until the next fold. With
/// VotesOptions::read_url `cached` reads the replica, where there is no cache before it.
enum class Consistency : std::uint8_t { cached, exact };

/// Where the strategy `cached` counts, `batched` on a server keeps copies, and votes of
/// `write_behind` wait (Redis only). A memory store
/// serves one process. If another one votes for the same items: with cached the workers of both
/// recount them again and again; with batched copies lack its votes, for max_age at most.
using VoteCache =
    std::variant<std::monostate, std::shared_ptr<memory::Store>, std::shared_ptr<redis::Client>>;

/// The SQL that create_tables() runs if there are no tables yet, made without a database. It does
/// nothing where the tables are there already.
/// A config error for options that make() refuses.
Result<std::string> votes_schema(sql::Dialect dialect, const VotesOptions& options = {});

class Votes {
  public:
    /// `cache` is for strategies cached and write_behind, which need one, and batched, which keeps copies of its
    /// counts there for count() (SQLite: reads them from their rows). With another strategy it is a
    /// config error.
    static Result<std::shared_ptr<Votes>> make(std::shared_ptr<sql::Database> database,
                                               VotesOptions options = {}, VoteCache cache = {});
    virtual ~Votes() = default;

    /// Creates what is missing. Idempotent; several processes may call it at once; takes no lock if
    /// nothing is missing. If a strategy that keeps its counts elsewhere counted the tables before,
    /// moves the counts here while nobody votes or folds: processes of that strategy are refused from
    /// then on, with an error that says so. Tables in a removed format are a config error.
    /// `existing` is for tables that hotcount has not counted before, and ignored for others: an
    /// item whose count (NULL is 0) is not the sum of its votes has a history of its own. A refusal
    /// creates and changes nothing (MariaDB, MySQL: unless a count changes meanwhile; empty tables
    /// may stay then). The first call holds a lock on items and votes for as long as a scan of both
    /// takes.
    /// `outside`: the triggers are replaced or dropped if they are not that already; what others
    /// wrote before is reconcile()'s. A config error, before anything changes, if the role may not
    /// create triggers, if one of the name is somebody else's, or if a cascade would reach the votes
    /// where the database runs no triggers for it.
    virtual Result<void> create_tables(ExistingCounts existing = ExistingCounts::refuse,
                                       OutsideWrites outside = OutsideWrites::leave,
                                       Timeout timeout = {}) = 0;
    /// As votes_schema().
    virtual std::string schema() const = 0;
    /// What these tables still lack, as statements for the dialect's own client (psql, mariadb,
    /// sqlite3); empty if nothing: create_tables() changes nothing then, and needs no right to. They
    /// are ordered so that the application goes on beside them, and say where it waits; run again
    /// after a failure, this returns the rest. Changes nothing itself. A config error names a table
    /// and a column that no statement of ours can mend, and says what to do.
    /// `existing`, `outside`: as for create_tables(). Comments name cascades that no trigger counts.
    virtual Result<std::string> migration(ExistingCounts existing = ExistingCounts::refuse,
                                          OutsideWrites outside = OutsideWrites::leave,
                                          Timeout timeout = {}) = 0;
    /// Adds rows to the item table, in one transaction; those that exist stay as they are.
    virtual Result<void> add_items(std::span<const sql::Id> items, Timeout timeout = {}) = 0;

    virtual Result<Cast> cast(const Ballot& ballot, Timeout timeout = {}) = 0;
    /// Results by index: a ballot that is refused fails alone. batched: as few transactions as
    /// max_batch allows, and about 2 x log2(max_batch) more for one that the database refuses; else
    /// one per ballot. The timeout is the whole call's, which returns 100 ms after it at the
    /// latest: what was not sent by then was not applied.
    virtual std::vector<Result<Cast>> cast_many(std::span<const Ballot> ballots,
                                                Timeout timeout = {}) = 0;
    virtual Result<Count> count(const sql::Id& item, Consistency consistency = Consistency::cached,
                                Timeout timeout = {}) = 0;
    /// From one snapshot; from a cache: each as it is found.
    virtual Result<std::vector<Count>> count_many(std::span<const sql::Id> items,
                                                  Consistency consistency = Consistency::cached,
                                                  Timeout timeout = {}) = 0;

    // -- asking: reads the votes in SQL, exactly, with every strategy. With Consistency::cached and
    // read_url the answer may be the replica's, and read_max_lag old. ------------------------------

    /// The user's vote for the item, 0 for none.
    virtual Result<std::int64_t> get(const sql::Id& item, const sql::Id& user,
                                     Timeout timeout = {}) = 0;
    /// The user's votes for the items, in their order and of one snapshot; a statement for each 512
    /// items (PostgreSQL: 10,000).
    virtual Result<std::vector<std::int64_t>> get_many(std::span<const sql::Id> items,
                                                       const sql::Id& user,
                                                       Timeout timeout = {}) = 0;
    /// A page of those whose votes for the item count, ascending by user: the first `limit` (1 to
    /// 10,000) that follow `after`. A page that is not full is the last. Reads the vote table's
    /// primary key (item, user); votes without a user are not among them.
    virtual Result<std::vector<Voter>> voters(const sql::Id& item,
                                              const std::optional<sql::Id>& after = {},
                                              std::size_t limit = 100,
                                              Consistency consistency = Consistency::exact,
                                              Timeout timeout = {}) = 0;
    /// Reads all votes for the item in one statement.
    virtual Result<Tally> tally(const sql::Id& item, Consistency consistency = Consistency::exact,
                                Timeout timeout = {}) = 0;
    /// The n (1 to 10,000) items of the highest item.vote_count, whose exact counts are then read
    /// and put into descending order. An item whose new votes are not in vote_count yet may be
    /// missing. Scans the item table unless an index begins with vote_count: (vote_count, id).
    virtual Result<std::vector<ItemCount>> top(std::size_t n,
                                               Consistency consistency = Consistency::exact,
                                               Timeout timeout = {}) = 0;
    /// Retracts the vote if it is `value`, which is not 0, and else sets it to `value`; atomic
    /// beside all other votes. NOT idempotent: after outcome_unknown ask get() before it is called
    /// again. A transaction of its own with every strategy, and it does not queue behind votes that
    /// were handed in and not answered yet. A config error for a ballot with a version or an op_id.
    virtual Result<Cast> toggle(const Ballot& ballot, Timeout timeout = {}) = 0;
    Result<Cast> toggle(const sql::Id& item, const sql::Id& user, std::int64_t value = 1,
                        Timeout timeout = {}) {
        return toggle(Ballot{.item = item, .user = user, .value = value}, timeout);
    }

    // -- cleaning: in pages, each a transaction with a timeout of its own. After any error the pages
    // that were committed stay, all counts are right, and the same call goes on with the rest. -----

    /// Takes out all that counts for an item: its votes, journal rows, cells, opening balance and
    /// copies; vote_count becomes 0. The last step holds the fold's lock and the item's row, so
    /// that voters count before it or after it. The row stays unless `delete_row`, which deletes it
    /// in that step: then no vote can come between. An item made again begins at 0. Returns how many
    /// votes it took out. Also for items whose row is gone. A cached count of another process
    /// follows within max_age (cached: with the next round of a worker).
    virtual Result<std::int64_t> remove_item(const sql::Id& item, bool delete_row = false,
                                             Timeout timeout = {}) = 0;
    /// Takes out all votes of a user, and out of the counts in the same transactions (cached: the
    /// items are noted there for a recount, which follows at once, or by a worker). Votes that the
    /// user casts meanwhile may stay. Without an index that begins with the user it scans the whole
    /// vote table, 10,000 rows at a time. Nothing is left that tells versions: a vote that is cast
    /// again, even with an old version, counts.
    virtual Result<Erased> erase_user(const sql::Id& user, Timeout timeout = {}) = 0;
    /// Deletes retracted votes whose version is lower than `before`, or who have none, and returns
    /// how many. Changes no count. Scans the vote table, 10,000 rows at a time. Without the row an
    /// older version is not refused any more: `before` must be older than any retry.
    virtual Result<std::int64_t> prune(std::int64_t before, Timeout timeout = {}) = 0;

    /// Finds counts that disagree with the votes (of all items if none are named) and, unless
    /// dry_run, sets them right. In pages of at most 512 items, fewer if they have many votes, each
    /// with a timeout of its own. A page is read without a lock; only if it has a difference, those
    /// items are read again in a transaction that keeps other reconciles waiting, and set right
    /// there. batched and slotted on the servers: no voter waits for it. Finds orphans too, after
    /// all items. After an error what was done stays done, and the message says where to go on.
    virtual Result<std::vector<Drift>> reconcile(std::optional<std::span<const sql::Id>> items,
                                                 const ReconcileOptions& how,
                                                 Timeout timeout = {}) = 0;
    Result<std::vector<Drift>> reconcile(std::optional<std::span<const sql::Id>> items,
                                         bool dry_run = false, Timeout timeout = {}) {
        ReconcileOptions how;
        how.dry_run = dry_run;
        return reconcile(items, how, timeout);
    }
    /// Brings item.vote_count up to date if the strategy does not keep it so itself (batched and
    /// slotted on the servers, cached; slotted on SQLite). Waits for items that somebody holds.
    virtual Result<FlushReport> flush(Timeout timeout = {}) = 0;
    /// The caller's own SQL has committed so many journal rows, as hotcount.integrations.sqlalchemy
    /// does: this process folds them at its next pause, as it folds those of its own votes. Never
    /// waits. Nothing to do for strategies without a journal.
    virtual void note_appended(std::size_t rows) = 0;
    /// A worker of its own, which lives on with this object. A config error if the strategy
    /// needs none.
    virtual Result<std::shared_ptr<SyncWorker>> sync_worker() = 0;
    /// If there is a journal, asks the database what waits in it. Answers without that if the
    /// database refuses, does not answer or is late (VotesStats::pending_error).
    virtual Result<VotesStats> stats(Timeout timeout = {}) = 0;
    /// For a log: that the replica of read_url is of no use, once for each outage; that folds of this
    /// process fail, and that they work again. None if there is nothing new, or if somebody has taken
    /// it. Costs a load of memory for each of the two then.
    virtual std::optional<VotesEvent> take_event() { return {}; }
    virtual Contract contract() const = 0;
    virtual const VotesOptions& options() const = 0;

    // The same without waiting, by at most commit.workers threads of this object (naive, slotted:
    // twice as many). One of them calls `done`, which holds up others and must not block. If
    // the call is refused (capacity, closed), the calling thread calls it before it returns. A call under
    // way holds this object; in a forked child none is under way.
    //
    // Of two votes of one user for one item the one handed in later is applied later.

    virtual void cast_async(const Ballot& ballot, Completion<Cast> done, Timeout timeout = {}) = 0;
    /// A call of many votes goes in portions: what is handed in after it may come before its later
    /// ones.
    virtual void cast_many_async(std::span<const Ballot> ballots,
                                 std::function<void(std::vector<Result<Cast>>)> done,
                                 Timeout timeout = {}) = 0;
    virtual void count_async(const sql::Id& item, Completion<Count> done, Timeout timeout = {},
                             Consistency consistency = Consistency::cached) = 0;
    /// Has one of the threads make calls that have no form of their own here. If none is free by the
    /// deadline, or max_queue of them wait, `refuse` is told, and nothing was begun.
    virtual void run_async(Deadline deadline, std::function<void(Votes&)> work,
                           std::function<void(Error)> refuse) = 0;
};

}  // namespace hotcount
