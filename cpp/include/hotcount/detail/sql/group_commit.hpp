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
// Order of submission is order of application: one group is written at a time, and what has to be
// written again goes to the front. A call of many writes hands them in a portion at a time:
// max_batch, or an eighth of it while other calls come (PortionSize). The next portion follows once
// none of the last one waits to be written, so other callers' writes stand behind one portion of
// each such call. Writes whose row is held stay behind. When there is no room for a portion, the
// call waits for room.
//
// What a caller is told, and when:
//   - The leader has a transaction (on SQLite: the write lock) before it takes the group, so that a
//     caller whose deadline passes while it waits for one leaves with nothing applied.
//   - A caller whose deadline passes while its group is written, before COMMIT is sent, leaves with
//     nothing applied too: it withdraws, and the leader rolls back and writes the group again
//     without it. Once for each group: a caller whose deadline passes after that, or after COMMIT
//     was sent, does not know its outcome.
//   - If the writer commits by itself, a caller whose deadline passes while its statement runs
//     waits 200 ms for the outcome: a statement that meets a held row gives way.
//   - If the leader's own deadline passes, only the leader gets an error: the next leader writes
//     what it has not written. If it passes before COMMIT is answered, only the leader leaves without
//     knowing: a thread of the pool waits on for those who have more time.
//   - A deadlock or the like: the same group again, after a pause. A connection lost before COMMIT
//     was sent: once more on another. COMMIT sent and not answered: unknown, for all members. With
//     several hosts the writer looks on the primary of then what became of each
//     (BatchWriter::find_applied()).
//   - A write that the database refuses (a constraint, a trigger, a value that its column does not
//     take) fails alone: the group is halved until it is found, which takes about
//     2 x log2(members) transactions for one such write. may_be_one_writes_fault() says which
//     errors are looked into so; the others fail the group.
//
// A writer may commit by itself (commits_by_itself()), in one statement if the database can. It
// settles each write apart, and may leave some to be written later: a second write to a row
// that this batch writes already (deferred), and those whose rows another transaction holds:
//
//   groups --> leader --> written
//     ^  ^        |-----> deferred, to the front of the groups
//     |  |        `-----> held, and all later writes to the same rows behind them
//     |  `----------------- written by the held thread, after 5 to 100 ms; from 1 s on it also waits
//     `-------------------- no longer held: those that came meanwhile, to the front
//
// Held writes have a thread and a connection of their own: the held thread. So whatever one row
// waits for, the others go on, and writes to one row keep their order.
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
    /// Most writes in one transaction. More: fewer fsyncs per write, and a longer wait for the
    /// first of them (about 5 us a vote on SQLite). 1 is one transaction per write.
    std::size_t max_batch{1000};
    /// How long a leader lingers for more writes before it writes. 0: only for callers that are
    /// expected back at once because the previous transaction has just answered them, and for at
    /// most half of the time that transaction took. More: fewer commits and more latency, if callers
    /// are few and come at odd times.
    Duration max_delay{0};
    /// Most writes waiting, those for held rows among them. A single one beyond it is refused at
    /// once with a capacity error; a call of many waits for room within its deadline. More: more
    /// memory, about 0.5 KB for each that waits, and the last of them waits longer.
    std::size_t max_queue{100'000};
    /// Threads for calls that do not wait, 1 to 64; started by the first such call. With 2 one
    /// answers a group while the other writes the next, and one is free to end calls whose
    /// deadlines pass; with 1 that is seen to between two transactions. More gain nothing: one
    /// group is written at a time.
    std::size_t workers{2};
};

/// Refuses options that could not work, by name.
Result<void> check_options(const GroupCommitOptions& options);

struct BulkCall;
struct WriteGroup;
class GroupQueue;
class LeaderTurn;

/// The rows of a write that another transaction may hold, as hashes. Writes with equal keys share
/// a row; a collision makes a write wait along with others.
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

    /// Set by the writer if this write alone was refused; the others go on.
    std::optional<Error> error{};

    /// Set by a writer that commits by itself.
    enum class Fate : std::uint8_t {
        open,         ///< As write_and_commit() returns.
        written,      ///< Committed, whatever it returns.
        deferred,     ///< Not written: it follows another write of this batch to the same row.
        shared_held,  ///< Not written: another transaction holds what it shares with others.
        row_held,     ///< Not written: another transaction holds the row.
    };
    Fate fate{Fate::open};

  private:
    friend class GroupQueue;
    friend class LeaderTurn;
    const RowKeys keys_{};
    bool again_{false};  // Its leader's: it is to be written by another turn.
    // Set before it is queued.
    Deadline deadline_{Deadline::at(SteadyTime::max())};
    Completion<void> done_{};
    bool waited_for_{true};
    bool one_of_many_{false};  // That its caller waits for.
    BulkCall* bulk_{nullptr};  // Hands in more once this one waits for the leader no more.
    // Under the mutex of the queue.
    std::shared_ptr<WriteGroup> group_{};
    bool gone_{false};       // Its caller was answered already.
    bool withdrawn_{false};  // With "nothing was applied": it must not be written any more.
};

/// The writes of one call, which are made as their turn comes.
struct ManyWrites {
    std::size_t count{0};
    /// The write at an index. Called again for one that found no room.
    std::function<std::shared_ptr<QueuedWrite>(std::size_t)> make{};
    /// Called once for each index, in any order. `write` is null if the time to make it never came.
    std::function<void(std::size_t, const QueuedWrite* write, const Result<void>& result)> settle{};
};

/// What a call that does not wait is about to be told.
struct WriteAnswer {
    std::shared_ptr<QueuedWrite> write;
    std::optional<Error> error;  ///< None: committed. Else the write may be being written yet.
};

/// How long the held thread waits for a row. Longer: less is asked of the server for what is held for
/// long, and other rows that are held are looked at later.
inline constexpr std::chrono::milliseconds kHeldRowWait{250};

/// A batch's turn, as a writer that commits by itself sees it.
class BatchTurn {
  public:
    virtual Deadline deadline() const = 0;
    /// To be called right before what commits the batch is sent: from then on no member can withdraw.
    /// False if members have withdrawn: write_and_commit() returns then, with whatever error, and is
    /// called again without them.
    virtual bool seal() = 0;
    /// Nobody waits behind the batch and nothing is held: a statement that may wait for a row is as
    /// good as one that does not, as long as it gives way.
    virtual bool is_alone() = 0;
    /// How long to wait for the shared row if another transaction holds it: kHeldRowWait in the
    /// held thread, about what has been held for long; else 0: not at all.
    virtual Duration waits_for() const = 0;
    /// Whether this is the held thread's turn: all of the batch was found held before.
    virtual bool is_retry() const = 0;
    /// How a statement of it runs that may meet a row that is held: it gives way to others. What is
    /// cancelled so is written again in halves; one write alone is held.
    virtual Alone alone(bool read_committed) = 0;

  protected:
    ~BatchTurn() = default;
};

/// Writes a batch inside the transaction that GroupCommit began, or in its own.
class BatchWriter {
  public:
    virtual ~BatchWriter() = default;
    /// Whether write_and_commit() is called, and write() is not.
    virtual bool commits_by_itself() const { return false; }
    /// Writes and commits the batch, or parts of it one after the other. The connection has begun a
    /// transaction of which nothing was sent, which run_alone() takes for none. Each write's error
    /// and fate are its own; a returned error is of those without either, and leaves them as write()
    /// would. If it is outcome_unknown and the connection says commit_is_open(), the same call
    /// may come again with those writes, to wait on for the answer: with the same statement, which
    /// is not sent. Two calls at a time, the held thread's and another, which share no rows.
    virtual Result<void> write_and_commit(Connection& connection,
                                          std::span<const std::shared_ptr<QueuedWrite>> batch,
                                          BatchTurn& turn) {
        (void)connection, (void)batch, (void)turn;
        return make_error(ErrorCode::database, "this writer does not commit by itself");
    }
    /// `QueuedWrite::error` refuses one write only. A returned error rolls everything back; if it
    /// is one that a single write can cause (may_be_one_writes_fault), the batch is halved and written
    /// again until the guilty write alone fails. So write() may be called again with the same
    /// writes, also for the reasons above. One call at a time.
    virtual Result<void> write(Connection& connection,
                               std::span<const std::shared_ptr<QueuedWrite>> batch) {
        (void)connection, (void)batch;
        return make_error(ErrorCode::database, "this writer commits by itself");
    }
    /// What is known of a write whose COMMIT was lost.
    enum class Found : std::uint8_t { unknown, applied, nothing_applied };
    /// After a COMMIT that was lost with its connection, in another transaction, when the lost one
    /// has ended (read_after_loss()): what is known of each write. It locks what it reads. What
    /// was not applied is written again.
    virtual Result<std::vector<Found>> find_applied(
        Connection& connection, std::span<const std::shared_ptr<QueuedWrite>> batch) {
        (void)connection;
        return std::vector<Found>(batch.size(), Found::unknown);
    }
    /// Called once what write() wrote last is committed, or a part of what write_and_commit() did,
    /// before anybody is told. It keeps the next batch waiting.
    virtual void committed() {}
    /// Whether before_wake() is called.
    virtual bool has_before_wake() const { return false; }
    /// Called with writes of callers that wait, which are committed, before those are told, by the
    /// thread that wrote them; other threads may be in write(). For what is to be done once for
    /// many. Should be over by the deadline, which is the leader's. A caller whose own passes
    /// meanwhile is told that its write is committed. Returns what the same thread does once the
    /// others are awake, or nothing.
    virtual std::function<void()> before_wake(std::span<const std::shared_ptr<QueuedWrite>> written,
                                              Deadline deadline) {
        (void)written, (void)deadline;
        return {};
    }
    /// Called by a thread of the pool before completions are, for all that it is going to call;
    /// other threads may be in write(). For what is to be done once for many. May block until the
    /// deadline, which is the latest of theirs.
    virtual void before_answers(std::span<const WriteAnswer> answers, Deadline deadline) {
        (void)answers, (void)deadline;
    }
};

class GroupCommit {
  public:
    GroupCommit(std::shared_ptr<Database> database, std::shared_ptr<BatchWriter> writer,
                GroupCommitOptions options);
    GroupCommit(const GroupCommit&) = delete;
    GroupCommit& operator=(const GroupCommit&) = delete;
    /// Calls that wait are over by now. Others that are queued end as closed; those being written
    /// are waited for until their completions were called, except in a completion.
    ~GroupCommit();

    /// Returns when the write is committed, refused, or its outcome unknown.
    Result<void> submit(const std::shared_ptr<QueuedWrite>& write, Deadline deadline);
    /// The same for several; returns by 100 ms after the deadline (time_to_send). They share
    /// transactions as far as max_batch allows.
    void submit_all(const ManyWrites& writes, Deadline deadline);
    std::vector<Result<void>> submit_all(std::span<const std::shared_ptr<QueuedWrite>> writes,
                                         Deadline deadline);

    /// The same without waiting. A thread of the pool calls `done`, which holds up others and must
    /// not block; for a write that is refused, the calling thread, before this returns. About 5 ms
    /// after the deadline at the latest if a thread of the pool is free; 200 ms later if a statement of
    /// a writer that commits by itself is under way.
    void submit_async(std::shared_ptr<QueuedWrite> write, Deadline deadline, Completion<void> done);
    /// Several. Threads of the pool call `settle`, for two indexes at a time perhaps, and then
    /// `done`. Of a call of more than an eighth of max_batch a part is handed in later, so calls
    /// made meanwhile may come first.
    void submit_all_async(ManyWrites writes, Deadline deadline, std::function<void()> done);
    void submit_all_async(std::vector<std::shared_ptr<QueuedWrite>> writes, Deadline deadline,
                          std::function<void(std::vector<Result<void>>)> done);

    struct Stats {
        std::uint64_t batches;  ///< Transactions written.
        std::uint64_t writes;   ///< Writes in them.
        std::size_t waiting;    ///< Writes that wait to be written now; held ones apart.
        std::size_t held;       ///< Writes that wait for rows which other transactions hold.
        Duration held_for;      ///< How long the first of those rows has been held.
    };
    Stats stats() const;

  private:
    std::shared_ptr<GroupQueue> queue_;
};

}  // namespace hotcount::sql
