// Reads on a replica of the database, each with the time that it is surely not older than.
//
// A replica applies commits in the primary's order. So whoever sees a heartbeat there sees every vote
// that was acknowledged before the heartbeat was written.
//
//   heartbeat  a row of vote_meta: the primary's clock in microseconds, a number that is drawn, and the
//              server that it was written to
//   look       reads the primary's clock and its heartbeat, and writes a new one if that is older than
//              a quarter of read_max_lag. A thread of ours looks, and only while somebody reads here.
//              From then on we know how the primary's clock runs beside ours
//   read       in one snapshot of the replica: the heartbeat, which server that is, and whether it is a
//              standby; then what is asked
//
// An answer counts if its heartbeat is recent enough and was written to the server that the last look
// has found, and if the replica has lately shown one that a look has seen: another database may have
// these tables, too, and heartbeats of its own. A heartbeat of another server makes the thread look
// again, because the primary may have changed.
//
// A server that was a standby and is none any more has been promoted, and may take votes of its own.
// It counts again when a look has found it: it is the primary now.
//
// No clock but the primary's is compared with itself: those of this machine and of the replica may be
// wrong. A step of the primary's clock is an error of that size until the next look, which begins
// anew after a step back of more than 0.1 s.
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
    /// Opens VotesOptions::read_url, for 2 s at most. A config error if that URL cannot be one of a
    /// replica of this database; a server that does not answer is none.
    static Result<std::shared_ptr<Replica>> make(std::shared_ptr<sql::Database> primary,
                                                 const VotesOptions& options);

    /// Reads, in the open transaction of a connection. It may run more than once.
    using Body = std::function<Result<void>(sql::Connection& connection)>;
    /// As of when the body has read there. None if the primary is to be asked instead, whatever the
    /// body has done: it takes half of the time until the deadline at most.
    std::optional<WallTime> read(Deadline deadline, const Body& body);

    void add_stats(VotesStats& stats) const;
    /// What is wrong, once for each outage.
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

/// The primary's clock in microseconds as a heartbeat has it; none for what is no heartbeat.
std::optional<std::int64_t> heartbeat_time(std::string_view heartbeat);

}  // namespace hotcount
