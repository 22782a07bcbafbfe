// Group commit: many callers' writes in one transaction, each caller answered after the commit.
//
//   callers --submit--> group --(its first caller leads)--> begin, write the group, commit
//                                                            `-> wake every member at once
//
// Callers gather in groups of at most max_batch; a group is one transaction, and its members sleep
// on one event, so that one system call wakes them all: waking 60 callers one by one took as long
// as writing their votes.
//
// The leader takes the write lock first and the queue second, so that a caller whose deadline
// passes while the lock is held elsewhere leaves with nothing applied. No thread of its own: the
// leader is one of the blocked callers, and after its one group it hands the role to the caller that
// has waited longest. Order of submission is order of application.
//
// Thread-safe. Its state is per process (see fork.hpp): the owner keeps it in a ForkLocal.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <hotcount/base/clock.hpp>
#include <hotcount/base/event.hpp>
#include <hotcount/base/result.hpp>
#include <hotcount/sql/database.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

namespace hotcount::sql {

struct GroupCommitOptions {
    /// Most writes in one transaction. More: fewer fsyncs per write, and a longer wait for the
    /// first of them (about 5 us a vote on SQLite). 1 is one transaction per write.
    std::size_t max_batch{1000};
    /// How long a leader waits for company before it writes. 0: only for callers that are expected
    /// back at once because the previous transaction has just answered them, and for at most half
    /// of the time that transaction took. More trades latency for fewer commits where callers are
    /// few and come at odd times.
    Duration max_delay{0};
    /// Most writes waiting. A caller beyond it is refused with a capacity error.
    std::size_t max_queue{100'000};
};

/// Refuses options that could not work, by name.
Result<void> check_options(const GroupCommitOptions& options);

struct TicketGroup;

/// One caller's write. Derive from it; the batch writer knows the derived type.
class Ticket {
  public:
    virtual ~Ticket() = default;

    /// Set by the writer where this write alone was refused; the others go on.
    std::optional<Error> error{};

  private:
    friend class GroupCommit;
    std::shared_ptr<TicketGroup> group_;  // Under the mutex of the group commit.
};

/// Writes a batch inside the transaction that GroupCommit began.
class BatchWriter {
  public:
    virtual ~BatchWriter() = default;
    /// `Ticket::error` refuses one write only. A returned error rolls everything back; where it is
    /// one that a single write can cause (overflow, integrity), the batch is halved and written
    /// again until the guilty write alone fails. So write() may be called again with a ticket.
    virtual Result<void> write(Connection& connection,
                               std::span<const std::shared_ptr<Ticket>> batch) = 0;
};

class GroupCommit {
  public:
    GroupCommit(std::shared_ptr<Database> database, std::shared_ptr<BatchWriter> writer,
                GroupCommitOptions options);

    /// Returns when the ticket's write is committed, refused, or its outcome unknown.
    Result<void> submit(const std::shared_ptr<Ticket>& ticket, Deadline deadline);
    /// The same for several; results by index. They share transactions as far as max_batch allows.
    std::vector<Result<void>> submit_all(std::span<const std::shared_ptr<Ticket>> tickets,
                                         Deadline deadline);

    struct Stats {
        std::uint64_t batches;  ///< Transactions written.
        std::uint64_t writes;   ///< Tickets in them.
    };
    Stats stats() const;

  private:
    using Group = TicketGroup;

    Result<void> enqueue(std::span<const std::shared_ptr<Ticket>> tickets, bool& leads);
    Result<void> await(const std::shared_ptr<Ticket>& ticket, Deadline deadline);
    Result<void> lead(const std::shared_ptr<Ticket>& own, Deadline deadline);
    std::shared_ptr<Group> gather_and_write(const std::shared_ptr<Ticket>& own, Deadline deadline);
    void wait_for_company(Deadline deadline);
    std::shared_ptr<Group> take_group();
    void leave(const std::shared_ptr<Ticket>& ticket);
    void pass_leadership();
    void write_in_transaction(Connection& connection,
                              std::span<const std::shared_ptr<Ticket>> batch, Deadline deadline);
    void write_begun(Connection& connection, std::span<const std::shared_ptr<Ticket>> batch,
                     Deadline deadline);

    std::shared_ptr<Database> database_;
    std::shared_ptr<BatchWriter> writer_;
    GroupCommitOptions options_;

    std::mutex mutex_;
    std::condition_variable gathered_;
    std::deque<std::shared_ptr<Group>> groups_;  // To be written in this order; none is empty.
    std::size_t queued_{0};                      // Tickets in them.
    bool leading_{false};
    std::size_t wanted_{0};    // The gathering leader is woken when so many are queued.
    std::size_t expected_{1};  // Callers known at the end of the previous transaction.
    Duration patience_{0};     // Half of the time it took.

    std::atomic<std::uint64_t> batches_{0};
    std::atomic<std::uint64_t> writes_{0};
};

}  // namespace hotcount::sql
