// SlottedCounter: a count spread over several rows, so that writers seldom meet on one.
//
//   table  hotcount_slot (key, slot, count), primary key (key, slot)     count = SUM over slots
//
// Every add is committed when the call returns. Adds of concurrent callers share a transaction
// (group commit), which updates each row once. Because a read sums all slots, the number of
// slots may change at any time. SQLite, with one writer at a time, uses slot 0 unless slots are
// random. A single slot cannot leave 64 bits; a sum that does is an overflow error on reading.
// Thread-safe.
//
// Example, the body of a function that returns Result<void>:
//
//   @code
//   HOTCOUNT_TRY_ASSIGN(const auto database, sql::open_database("sqlite:///example.db"));
//   HOTCOUNT_TRY_ASSIGN(const auto counter, SlottedCounter::make(database));
//   HOTCOUNT_TRY(counter->create_table());
//   HOTCOUNT_TRY(counter->add("page:home", 2));
//   HOTCOUNT_TRY(counter->add("page:home", 1, "order:17"));  // Once, however often it is retried.
//   HOTCOUNT_TRY_ASSIGN(const std::int64_t views, counter->get("page:home"));
//   std::cout << views << '\n';  // 3
//   @endcode
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/detail/redis/channel.hpp>
#include <hotcount/detail/sql/group_commit.hpp>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotcount {

/// Which slot of a count a writer uses.
enum class SlotChoice : std::uint8_t {
    /// Each writer keeps its slot: neighbours stay apart while there are slots to spare. A writer is
    /// a thread, or a connection if it carries the writes of several threads.
    sticky,
    random,  ///< A random slot for each add: writers collide even with slots to spare.
};

/// A slot in [0, slots) for the calling thread's next write.
std::int64_t choose_slot(SlotChoice choice, std::int64_t slots);

struct SlottedCounterOptions {
    std::string table{"hotcount_slot"};
    std::string key_column{"key"};
    std::string slot_column{"slot"};
    std::string count_column{"count"};
    /// How many rows a key may spread over, 1 to 10,000. More: fewer waits if rows are locked
    /// one by one (not SQLite); each read sums that many rows.
    std::int64_t slots{100};
    SlotChoice slot_choice{SlotChoice::sticky};
    /// Begins with one slot. The number doubles, up to `slots`, whenever a writer finds its row
    /// locked by another. This check costs a round trip for each row of a transaction.
    bool adaptive{false};
    /// How long an op_id is remembered.
    Duration op_keep{std::chrono::hours{24}};
    sql::GroupCommitOptions commit{};
    /// The clock for op_keep: its wall time, because rows outlive the process.
    std::shared_ptr<const Clock> clock{system_clock()};
};

/// The SQL that create_table() runs, without a database. A config error for options that make()
/// refuses.
Result<std::string> slotted_counter_schema(sql::Dialect dialect,
                                           const SlottedCounterOptions& options = {});

class SlottedCounter {
  public:
    static Result<std::shared_ptr<SlottedCounter>> make(std::shared_ptr<sql::Database> database,
                                                        SlottedCounterOptions options = {});
    virtual ~SlottedCounter() = default;

    virtual Result<void> create_table(Timeout timeout = {}) = 0;
    /// With an op_id the add is counted once, however often it is retried within op_keep. With a
    /// slot the add goes to that row, regardless of slot_choice and of locks on the row. The slot
    /// is 0 to slots() - 1, or to options().slots - 1 if slots are adaptive; else a config error.
    virtual Result<void> add(std::string_view key, std::int64_t n = 1,
                             std::optional<std::string_view> op_id = {},
                             std::optional<std::int64_t> slot = {}, Timeout timeout = {}) = 0;
    /// Makes all adds in as few transactions as max_batch allows; results by index.
    virtual std::vector<Result<void>> add_many(
        std::span<const std::pair<std::string_view, std::int64_t>> amounts,
        Timeout timeout = {}) = 0;
    virtual Result<std::int64_t> get(std::string_view key, Timeout timeout = {}) = 0;
    /// The counts of all keys, from one snapshot.
    virtual std::vector<Result<std::int64_t>> get_many(std::span<const std::string_view> keys,
                                                       Timeout timeout = {}) = 0;
    /// Removes the key's rows; returns their sum.
    virtual Result<std::int64_t> reset(std::string_view key, Timeout timeout = {}) = 0;
    /// Changes the number of slots for this object's later adds; counts stay as they are. Adaptive
    /// slots grow from this number.
    virtual Result<void> resize(std::int64_t slots) = 0;
    /// Gathers the key's rows into slot 0; returns the (unchanged) sum.
    virtual Result<std::int64_t> compact(std::string_view key, Timeout timeout = {}) = 0;

    // The calls above without waiting. A thread of the library calls `done`, which must not block,
    // because other completions wait for it. For a bad argument the calling thread calls `done`
    // before the call returns. Of AsyncCall adds use `timeout` only, and other calls `timeout` and
    // `cancelled`. Arguments are copied. Adds share transactions with blocking adds, in the order of
    // the calls (GroupCommit::submit_async). Other calls begin in order, on at most commit.workers
    // threads.

    virtual void add_async(std::string_view key, std::int64_t n,
                           std::optional<std::string_view> op_id, std::optional<std::int64_t> slot,
                           Completion<void> done, AsyncCall call = {}) = 0;
    virtual void add_many_async(std::span<const std::pair<std::string_view, std::int64_t>> amounts,
                                Completion<std::vector<Result<void>>> done,
                                AsyncCall call = {}) = 0;
    virtual void create_table_async(Completion<void> done, AsyncCall call = {}) = 0;
    virtual void get_async(std::string_view key, Completion<std::int64_t> done,
                           AsyncCall call = {}) = 0;
    virtual void get_many_async(std::span<const std::string_view> keys,
                                Completion<std::vector<Result<std::int64_t>>> done,
                                AsyncCall call = {}) = 0;
    virtual void reset_async(std::string_view key, Completion<std::int64_t> done,
                             AsyncCall call = {}) = 0;
    virtual void compact_async(std::string_view key, Completion<std::int64_t> done,
                               AsyncCall call = {}) = 0;

    /// The present number of slots.
    virtual std::int64_t slots() const = 0;
    virtual const SlottedCounterOptions& options() const = 0;
};

}  // namespace hotcount
