// WriteBehindCounter: counts without a row for each user, such as views. An add is acknowledged by
// Redis, and workers bring it to a SQL database.
//
//   process   a cell for each key: the sum of all adds of this writer
//     |  a flush sends that sum; Redis keeps the larger one
//   Redis     {prefix}:{shard}:c:KEY     a hash: writer -> its sum
//     |  a worker sets the row of the cell to the larger sum, and adds the difference to the total,
//     |  in one transaction; then it removes the cell from Redis
//   SQL       {table} (key, total)   {table}_cell (key, writer, up, down, ...)
//
// A message carries the sum of its writer and not a difference, so a message that is lost, doubled
// or late is harmless: nothing is counted twice. A count is the total plus, for each cell in Redis,
// the difference between the cell and its row in SQL.
//
// Thread-safe. A forked child is a writer of its own.
// Failure: Ack lists the failures that an acknowledged add survives. If Redis loses cells
// (FLUSHALL, a crash, a failover), live processes send theirs again. A cell is lost if Redis loses
// it and its process has ended before a worker has written it to SQL.
// Cost: an add is one script call for Redis, combined with others; with Ack::local it is no call. A
// round of the worker writes two rows in SQL for each key, however many adds there were.
//
// Example, the body of a function that returns Result<void>:
//
//   @code
//   HOTCOUNT_TRY_ASSIGN(const auto database, sql::open_database("sqlite:///example.db"));
//   HOTCOUNT_TRY_ASSIGN(const auto options, redis::parse_options("redis://localhost"));
//   HOTCOUNT_TRY_ASSIGN(const auto client, redis::Client::make(options));
//   HOTCOUNT_TRY_ASSIGN(const auto views, WriteBehindCounter::make(database, client));
//   HOTCOUNT_TRY(views->create_tables());
//   HOTCOUNT_TRY(views->add("page:home"));
//   HOTCOUNT_TRY(views->add("page:home", 2, Ack::local));
//   HOTCOUNT_TRY_ASSIGN(const Count count, views->get("page:home"));
//   std::cout << count.value << '\n';  // 3
//   @endcode
#pragma once

#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/detail/redis/channel.hpp>
#include <hotcount/detail/sql/group_commit.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotcount {

/// The place that has the add when add() returns.
enum class Ack : std::uint8_t {
    cache,  ///< Redis has the add. It survives the death of this process.
    local,  ///< This process has it, and Redis after flush_interval. kill -9 before that loses it.
    sql,    ///< It is committed in SQL, with the adds of other callers. Redis is not asked.
};
std::string_view to_string(Ack ack);

struct WriteBehindOptions {
    /// Also names {table}_cell and {table}_meta.
    std::string table{"hotcount_views"};
    /// The prefix of the keys in Redis. Each table needs its own prefix, because its workers save
    /// all cells that they find under it.
    std::string prefix{"views"};
    /// How long an add with Ack::local stays in this process alone, and how soon a loss in Redis is
    /// noticed, 1 ms to 1 min. Shorter: more calls of Redis by each process that counts.
    Duration flush_interval{std::chrono::milliseconds{250}};
    /// Maximum of cells in one process, 1 to 10,000,000, about 300 bytes each. At the bound, cells
    /// that are in SQL make room for new ones; without such cells an add to a new key is a
    /// capacity error.
    std::size_t max_cells{100'000};
    /// The pause of a worker between two rounds: how far the totals in SQL lag behind.
    Duration interval{std::chrono::seconds{1}};
    /// For Ack::sql.
    sql::GroupCommitOptions commit{};
    /// The age of a writer comes from its wall clock.
    std::shared_ptr<const Clock> clock{system_clock()};
};

/// The calls of this object in this process, and the adds that are not in SQL yet.
struct WriteBehindStats {
    std::uint64_t adds{0};      ///< Acknowledged.
    std::uint64_t failed{0};    ///< Adds that failed.
    std::uint64_t flushed{0};   ///< Cells that flushes sent and Redis stored.
    std::uint64_t losses{0};    ///< Times that Redis may have lost cells, and they were sent again.
    std::uint64_t writers{0};   ///< Writer ids of this process.
    std::int64_t cells{0};      ///< Cells in this process now.
    std::int64_t unapplied{0};  ///< Cells of these that are not known to be in SQL.
    std::int64_t pending{0};    ///< Cells of these that are not in Redis either.
    std::int64_t at_risk{0};    ///< Acknowledged adds that are only in this process.
    std::string flush_error{};  ///< The last flush's error; empty if it succeeded.
};

/// The SQL that create_tables() runs, without a database. A config error for options that make()
/// refuses.
Result<std::string> write_behind_schema(sql::Dialect dialect,
                                        const WriteBehindOptions& options = {});

class WriteBehindCounter {
  public:
    /// A config error if Redis answers, and evicts keys of all kinds when its memory is full
    /// (maxmemory-policy allkeys-...): cells would be lost in silence.
    static Result<std::shared_ptr<WriteBehindCounter>> make(std::shared_ptr<sql::Database> database,
                                                            std::shared_ptr<redis::Client> client,
                                                            WriteBehindOptions options = {});
    virtual ~WriteBehindCounter() = default;

    virtual Result<void> create_tables(Timeout timeout = {}) = 0;
    /// n may be negative. If the error is outcome_unknown, the add is in this process and is counted
    /// once, as long as the process lives until Redis answers: adding again would count it twice.
    /// After any other error nothing was counted.
    virtual Result<void> add(std::string_view key, std::int64_t n = 1, Ack ack = Ack::cache,
                             Timeout timeout = {}) = 0;
    /// add() for many keys, sent together; results by index. The amounts for one key are one add,
    /// and each of them gets its result.
    virtual std::vector<Result<void>> add_many(
        std::span<const std::pair<std::string_view, std::int64_t>> amounts, Ack ack = Ack::cache,
        Timeout timeout = {}) = 0;
    /// The sum of all acknowledged adds, without the adds with Ack::local that other processes have
    /// not flushed yet. Count::pending: the adds in it that SQL does not have yet.
    virtual Result<Count> get(std::string_view key, Timeout timeout = {}) = 0;
    /// get() of many keys: each is read once from Redis, and then all from one snapshot of SQL;
    /// results by index.
    virtual std::vector<Result<Count>> get_many(std::span<const std::string_view> keys,
                                                Timeout timeout = {}) = 0;
    /// Sets the count to 0 and returns its old value. One transaction writes the adds that get()
    /// would count to SQL and subtracts their sum from the total: of two concurrent resets, one
    /// returns 0. Adds that it does not see (made meanwhile, or with Ack::local in other processes)
    /// are counted afterwards. outcome_unknown: it may be done; a repeat loses nothing.
    virtual Result<std::int64_t> reset(std::string_view key, Timeout timeout = {}) = 0;
    /// Sends the cells that are only in this process to Redis. acked: cells that Redis or SQL has
    /// now; pending: cells not sent by the deadline; at_risk: acknowledged adds in pending cells.
    virtual Result<FlushReport> flush(Timeout timeout = {}) = 0;
    /// Brings the cells of all processes to SQL. Any number of workers may run at once.
    virtual Result<std::shared_ptr<SyncWorker>> sync_worker() = 0;

    // The calls above without waiting. A thread of the library, or of the channel, calls `done`,
    // which must not block. For a bad argument and for Ack::local the calling thread calls `done`
    // before the call returns. Cancelling does not withdraw an add.

    virtual void add_async(std::string_view key, std::int64_t n, Ack ack, Completion<void> done,
                           AsyncCall call = {}) = 0;
    virtual void add_many_async(std::span<const std::pair<std::string_view, std::int64_t>> amounts,
                                Ack ack, Completion<std::vector<Result<void>>> done,
                                AsyncCall call = {}) = 0;
    /// One of commit.workers threads of the library makes the call. All keys get an error if no
    /// thread was free by the deadline, or if too many calls wait.
    virtual void get_many_async(std::span<const std::string_view> keys,
                                Completion<std::vector<Result<Count>>> done,
                                AsyncCall call = {}) = 0;
    /// Makes blocking calls in a thread of the library, as Votes::run_async().
    virtual void run_async(Deadline deadline, std::function<void(WriteBehindCounter&)> work,
                           std::function<void(Error)> refuse) = 0;

    /// Flushes and accepts no more adds. Returns at most 2 s after the timeout. The result is the
    /// number of acknowledged adds that are lost with this process.
    virtual std::int64_t close(Timeout timeout = {}) = 0;
    virtual WriteBehindStats stats() const = 0;
    virtual Contract contract() const = 0;
    virtual const WriteBehindOptions& options() const = 0;
};

}  // namespace hotcount
