// Group commit: many callers' writes in one transaction, each caller answered after the commit.
//
//   submit() --------> groups, in the order of their first write
//   submit_async() -/      |
//                          `-> one leader at a time: begin, write the first group, commit
//                                  `-> wake its blocked callers at once; answer the others in the
//                                      pool, while the next leader writes
//
// Callers gather in groups of at most max_batch; a group is one transaction. Blocked members sleep
// on one event, so that one system call wakes them all: waking 60 callers one by one took as long
// as writing their votes. The leader of a group is its first blocked caller, or one of `workers`
// threads of the pool if its first write is asynchronous. After one group it hands the role to the
// first write in the queue. Both kinds share groups.
//
// Order of submission is order of application: one group is written at a time, and writes that must
// be written again go to the front. A call of many writes queues them in portions of max_batch, or an
// eighth of it while there are other calls (PortionSize). The next portion follows when no write of
// the last one waits to be written, so other callers wait for one portion of each such call. Writes
// whose row is held do not delay the next portion. If there is no room for a portion, the call waits.
//
// Results of a call:
//   - The leader has a transaction (on SQLite: the write lock) before it takes the group, so that a
//     caller whose deadline passes while it waits for one leaves with nothing applied.
//   - A caller whose deadline passes while its group is written, before COMMIT is sent, leaves with
//     nothing applied too: it withdraws, and the leader rolls back and writes the group again
//     without it. Once for each group: if a caller's deadline passes after that, or after COMMIT was
//     sent, its outcome is unknown.
//   - If the writer commits by itself, a caller whose deadline passes while its statement runs
//     waits up to 200 ms for the outcome: a statement that meets a held row is cancelled.
//   - If the leader's own deadline passes, only the leader gets an error: the next leader writes the
//     rest. If it passes before COMMIT is answered, only the leader's outcome is unknown: a thread of
//     the pool waits for the answer on behalf of members with later deadlines.
//   - After a transient error such as a deadlock the same group is written again, after a pause. A
//     connection lost before COMMIT was sent is replaced once. COMMIT sent and not answered: the
//     outcome is unknown for all members. With several hosts the writer then reads on the current
//     primary which writes were applied (BatchWriter::find_applied()).
//   - A write that the database refuses (a constraint, a trigger, a value that its column does not
//     take) fails alone: the group is halved until it is found, which takes about
//     2 x log2(members) transactions for one such write. The group is halved for errors for which
//     may_be_one_writes_fault() is true; other errors fail the group.
//
// A writer may commit by itself (commits_by_itself()), in one statement if the database can. It
// settles each write separately, and may leave two kinds of writes to a later turn: a second write to
// a row that this batch writes already (deferred), and writes whose rows another transaction holds:
//
//   groups --> leader --> written
//     ^  ^        |-----> deferred, to the front of the groups
//     |  |        `-----> held, and all later writes to the same rows behind them
//     |  `----------------- written by the held thread, after 5 to 100 ms; from 1 s on it also waits
//     `-------------------- no longer held: writes that arrived meanwhile, to the front
//
// Held writes have a thread and a connection of their own: the held thread. A held row therefore
// delays only the writes to that row, and writes to one row keep their order.
//
// Thread-safe. Its state is per process (see fork.hpp): the owner keeps it in a ForkLocal. A forked
// child has none of the pool's threads and none of the calls under way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace hotcount::sql {

struct GroupCommitOptions {
    /// Maximum of writes in one transaction, at least 1. Higher: fewer fsyncs per write, and a longer
    /// wait for the first of them (about 5 us a vote on SQLite).
    std::size_t max_batch{1000};
    /// How long a leader lingers for more writes before it writes. 0: only for callers that the
    /// previous transaction has just answered, and for at most half of that transaction's time.
    /// Higher: fewer commits and more latency, if callers are few and arrive irregularly.
    Duration max_delay{0};
    /// Maximum of waiting writes, at least 1, including those for held rows. A single write beyond it
    /// fails at once with a capacity error; a call of many waits for room within its deadline.
    /// Higher: more memory, about 0.5 KB for each waiting write, and longer waits.
    std::size_t max_queue{100'000};
    /// Threads for asynchronous calls, 1 to 64; started by the first such call. With 2, one thread
    /// answers a group while the other writes the next, and deadlines are checked in time; with 1
    /// they are checked between two transactions. More than 2 gain nothing, because one group is
    /// written at a time.
    std::size_t workers{2};
};

/// A config error that names an option with a bad value.
Result<void> check_options(const GroupCommitOptions& options);

struct BulkCall;
struct WriteGroup;
class GroupQueue;
class LeaderTurn;

/// Hashes of the rows of a write that another transaction may lock. Writes with equal keys share a
/// row; after a collision a write waits for a row that it does not need.
struct RowKeys {
    std::uint64_t shared{0};  ///< The row that many writes refer to: an item.
    std::uint64_t row{0};     ///< The row that is written: a user's vote for an item.
};

/// One caller's write. Derive from it; the batch writer knows the derived type.
class QueuedWrite {
  public:
    QueuedWrite() = default;
    explicit QueuedWrite(RowKeys keys) : keys_(keys) {}
    virtual ~QueuedWrite() = default;

    /// Set by the writer if only this write was refused.
    std::optional<Error> error{};

    /// Set by a writer that commits by itself.
    enum class Fate : std::uint8_t {
        open,         ///< The result of write() holds for it.
        written,      ///< Committed, even if write() returns an error.
        deferred,     ///< Not written: it follows another write of this batch to the same row.
        shared_held,  ///< Not written: another transaction holds RowKeys::shared.
        row_held,     ///< Not written: another transaction holds RowKeys::row.
    };
    Fate fate{Fate::open};

  private:
    friend class GroupQueue;
    friend class LeaderTurn;
    const RowKeys keys_{};
    bool again_{false};  // Left to a later turn. Only the leader uses it.
    // Set before it is queued.
    Deadline deadline_{Deadline::at(SteadyTime::max())};
    Completion<void> done_{};
    bool waited_for_{true};
    bool one_of_many_{false};  // Its caller waits for other writes too.
    BulkCall* bulk_{nullptr};  // Queues more writes when this one no longer waits for a leader.
    // Under the mutex of the queue.
    std::shared_ptr<WriteGroup> group_{};
    bool gone_{false};       // Its caller has been answered.
    bool withdrawn_{false};  // The answer was "nothing was applied": it must not be written.
};

/// The writes of one call, made portion by portion.
struct ManyWrites {
    std::size_t count{0};
    /// Returns the write at an index. Called again if the queue had no room.
    std::function<std::shared_ptr<QueuedWrite>(std::size_t)> make{};
    /// Called once for each index, in any order. `write` is null if it was never made.
    std::function<void(std::size_t, const QueuedWrite* write, const Result<void>& result)> settle{};
};

/// The result of an asynchronous write, before its completion is called.
struct WriteAnswer {
    std::shared_ptr<QueuedWrite> write;
    std::optional<Error> error;  ///< nullopt: committed. With an error the write may still run.
};

/// How long the held thread waits for a row. Longer: fewer statements for rows that stay locked, and
/// later attempts at the other held rows.
inline constexpr std::chrono::milliseconds kHeldRowWait{250};

/// The turn of a batch, for a writer that commits by itself.
class BatchTurn {
  public:
    virtual Deadline deadline() const = 0;
    /// Call it right before the statement that commits the batch is sent: afterwards no member can
    /// withdraw. Returns an error if members have withdrawn: write() must then return an error, and
    /// is called again without them.
    virtual Result<void> seal() = 0;
    /// True if no write waits behind the batch and no row is held: a statement that waits for a row
    /// then delays no other write, provided that it gives way.
    virtual bool is_alone() = 0;
    /// How long to wait for the shared row if another transaction holds it: kHeldRowWait in a turn of
    /// the held thread that waits, otherwise 0.
    virtual Duration waits_for() const = 0;
    /// True in a turn of the held thread: all rows of the batch were held before.
    virtual bool is_retry() const = 0;
    /// Settings for a statement that may meet a held row: it is cancelled when other writes wait. A
    /// cancelled batch is written again in halves; a cancelled single write is held.
    virtual Alone alone(bool read_committed) = 0;

  protected:
    ~BatchTurn() = default;
};

/// Writes a batch inside the transaction that GroupCommit began, or in its own.
class BatchWriter {
  public:
    virtual ~BatchWriter() = default;
    using Batch = std::span<const std::shared_ptr<QueuedWrite>>;

    /// Writes the batch in the open transaction, which GroupCommit seals and commits.
    /// `QueuedWrite::error` refuses one write only. A returned error rolls everything back. If a
    /// single write can cause it (may_be_one_writes_fault), the batch is halved and written again
    /// until only that write fails, so write() may be called several times with the same writes. One
    /// call at a time.
    ///
    /// If commits_by_itself(), it seals the turn and commits the batch, or parts of it one after the
    /// other. The connection is then in a transaction for which nothing was sent yet; run_alone()
    /// treats it as none. The writer sets error or fate of single writes, and a returned error holds
    /// for the writes without either. If it is outcome_unknown and the connection's commit_is_open()
    /// is true, the same call may be repeated with those writes to wait for the answer: the same
    /// statement is not sent again. Two threads may call it at a time, one of them the held thread;
    /// their batches share no rows.
    virtual Result<void> write(Connection& connection, Batch batch, BatchTurn& turn) = 0;
    virtual bool commits_by_itself() const { return false; }
    /// The outcome of a write whose COMMIT was lost.
    enum class Found : std::uint8_t { unknown, applied, nothing_applied };
    /// Returns the outcome of each write after a COMMIT was lost with its connection. Called in
    /// another transaction, when the lost one has ended (read_after_loss()). It locks the rows that
    /// it reads. Writes that were not applied are written again.
    virtual Result<std::vector<Found>> find_applied(Connection& connection, Batch batch) {
        (void)connection;
        return std::vector<Found>(batch.size(), Found::unknown);
    }
    /// Called after each commit, before any caller is answered. The next batch waits for it.
    virtual void committed() {}
    /// True if before_answers() is called.
    virtual bool works_before_answers() const { return false; }
    /// Does work once for many writes, before their callers are answered: the committed writes of
    /// blocked callers, or asynchronous writes and their outcomes. Other threads may be in write().
    /// Should return by the deadline. Blocked callers: the leader's, and a caller whose own deadline
    /// passes meanwhile gets its result at once. Asynchronous writes: the latest of theirs. Returns a
    /// function, or an empty one, that the same thread runs after it has woken blocked callers, or
    /// before it calls completions.
    virtual std::function<void()> before_answers(std::span<const WriteAnswer> answers,
                                                 Deadline deadline) {
        (void)answers, (void)deadline;
        return {};
    }
};

class GroupCommit {
  public:
    GroupCommit(std::shared_ptr<Database> database, std::shared_ptr<BatchWriter> writer,
                GroupCommitOptions options);
    GroupCommit(const GroupCommit&) = delete;
    GroupCommit& operator=(const GroupCommit&) = delete;
    /// No blocking call may be under way. Queued asynchronous calls fail with closed. Unless a
    /// completion calls it, the destructor waits until all completions have run.
    ~GroupCommit();

    /// Returns when the write is committed or refused, or its outcome is unknown.
    Result<void> submit(const std::shared_ptr<QueuedWrite>& write, Deadline deadline);
    /// submit() for several writes; returns within 100 ms after the deadline (time_to_send). They
    /// share transactions as far as max_batch allows.
    void submit_all(const ManyWrites& writes, Deadline deadline);
    std::vector<Result<void>> submit_all(std::span<const std::shared_ptr<QueuedWrite>> writes,
                                         Deadline deadline);

    /// submit() without waiting. A thread of the pool calls `done`, which must not block, because
    /// other completions wait for it. If the queue refuses the write, the calling thread calls `done`
    /// before submit_async() returns. `done` is called within about 5 ms after the deadline if a
    /// thread of the pool is free; 200 ms later if a statement of a writer that commits by itself is
    /// under way.
    void submit_async(std::shared_ptr<QueuedWrite> write, Deadline deadline, Completion<void> done);
    /// submit_async() for several writes. Threads of the pool call `settle`, possibly for two
    /// indexes at the same time, and then `done`. A call of more than an eighth of max_batch queues
    /// a part of its writes later, so calls made meanwhile may be written first.
    void submit_all_async(ManyWrites writes, Deadline deadline, std::function<void()> done);
    void submit_all_async(std::vector<std::shared_ptr<QueuedWrite>> writes, Deadline deadline,
                          std::function<void(std::vector<Result<void>>)> done);

    struct Stats {
        std::uint64_t batches;  ///< Transactions written.
        std::uint64_t writes;   ///< Writes in them.
        std::size_t waiting;    ///< Writes in the queue, without held ones.
        std::size_t held;       ///< Writes that wait for rows which other transactions hold.
        Duration held_for;      ///< How long the first of those rows has been held.
    };
    Stats stats() const;

  private:
    std::shared_ptr<GroupQueue> queue_;
};

}  // namespace hotcount::sql
