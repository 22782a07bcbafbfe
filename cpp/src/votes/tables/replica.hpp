// Reads on a replica of the database, each with a lower bound for the time of its snapshot.
//
// A replica applies commits in the primary's order. So a snapshot that shows a heartbeat shows
// every vote that was acknowledged before the heartbeat was written.
//
//   heartbeat  a row of vote_meta: the primary's clock in microseconds, a random number, and the
//              server that it was written to
//   look       reads the primary's clock and its heartbeat, and writes a new one if that is older than
//              a quarter of read_max_lag. A background thread looks, only while there are reads. A
//              look gives the offset of the primary's clock to ours
//   read       in one snapshot of the replica: the heartbeat, the server, and whether the server is
//              a standby; then the query
//
// An answer counts if its heartbeat is recent enough and was written to the server that the last look
// has found, and if the replica has lately shown one that a look has seen: another database may have
// these tables, too, and heartbeats of its own. A heartbeat of another server makes the thread look
// again, because the primary may have changed.
//
// A server that was a standby and no longer is has been promoted, and may take votes of its own.
// Its answers count again when a look has found it: then it is the primary.
//
// The primary's clock is compared only with itself: the clocks of this machine and of the replica
// may be wrong. A step of the primary's clock is an error of that size until the next look, which
// discards earlier heartbeats after a step back of more than 0.1 s.
//
// The same thread opens the replica's connections after an outage, so that no caller waits for that.
// Thread-safe. A forked child looks for itself.
#pragma once

#include <functional>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/worker_pool.hpp>
#include <hotcount/sql.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace hotcount {

class Replica {
  public:
    /// Opens VotesOptions::read_url, for 2 s at most. A config error if that URL cannot be a
    /// replica's of this database; null if the server does not answer.
    static Result<std::shared_ptr<Replica>> make(std::shared_ptr<sql::Database> primary,
                                                 const VotesOptions& options);

    /// Reads, in the open transaction of a connection. It may run more than once.
    using Body = std::function<Result<void>(sql::Connection& connection)>;
    /// Runs `body` on the replica and returns the time of its snapshot. nullopt if the primary is
    /// to be asked instead, and `body` may have run. Takes at most half of the time until the
    /// deadline.
    std::optional<WallTime> read(Deadline deadline, const Body& body);

    void add_stats(VotesStats& stats) const;
    /// The current fault, once for each outage.
    std::optional<std::string> take_warning();

  private:
    struct Work;
    struct Handle {
        explicit Handle(std::shared_ptr<Work> of) : work(std::move(of)) {}
        const std::shared_ptr<Work> work;  // A task holds it.
        WorkerPool thread{1};
    };
    explicit Replica(ForkLocal<Handle>::Factory make_work) : handle_(std::move(make_work)) {}
    mutable ForkLocal<Handle> handle_;
};

/// The primary's clock in microseconds in a heartbeat; nullopt if the text is not a heartbeat.
std::optional<std::int64_t> heartbeat_time(std::string_view heartbeat);

}  // namespace hotcount
