// The companions of a load: a bystander that is timed, builds of sorted sets, faults of servers,
// and a meter of the servers' work.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <hotcount/live_sets.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "load/histogram.hpp"
#include "load/settings.hpp"
#include "managed_server.hpp"
#include "target.hpp"

namespace hotcount::loadtest {

/// Another client of the Redis under load: it sends a small command every millisecond and is timed.
///
/// Its latency is the cost of the load for all other clients: a server runs one command at a time,
/// so that a long script keeps them waiting.
class Bystander {
  public:
    /// Connects, and asks from the end of the warm-up to the end of the load, from now on.
    static Result<std::unique_ptr<Bystander>> start(const TrialSettings& settings);
    /// Ends it. From sending to the answer, in nanoseconds; what failed is left out.
    const Histogram& stop();

  private:
    Bystander() = default;

    std::shared_ptr<redis::Client> redis_;
    Histogram times_;
    std::jthread thread_;  // Last: it ends before what it uses.
};

/// Of one trial, its warm-up included.
struct Builds {
    std::uint64_t published{0};
    std::uint64_t failed{0};  ///< Not published, or perhaps not.
};

/// Builds sorted sets anew beside the load that writes to them, as the process does that fills
/// them.
///
/// A build adds the members of the set itself, read after the build has begun. Each member must
/// have the score of its last upsert afterwards, as without builds, so the audit ignores builds.
class Rebuilder {
  public:
    /// From now on, one set every settings.rebuild_every, those that outlive the load in turn.
    static Result<std::unique_ptr<Rebuilder>> start(const TrialSettings& settings);
    /// Ends it, after the build that is under way.
    Builds stop();

  private:
    Rebuilder() = default;
    Result<void> build(std::uint64_t item, Duration life);

    std::shared_ptr<LiveSets> sets_{};
    Builds builds_{};
    std::jthread thread_{};  // Last: it ends before what it uses.
};

/// One fault as it went. Times are those of the machine's monotonic clock.
struct Outage {
    Fault fault{};
    SteadyTime away{};  ///< When the server went away.
    SteadyTime back{};  ///< When it answered again, or went on.
    /// When another server took over its writes; empty: no server did.
    std::optional<SteadyTime> replaced{};
    /// When the server that went away stopped acknowledging writes; empty: that was not seen.
    std::optional<SteadyTime> refused{};
    /// Writes acknowledged before this time are on the server that replaced it.
    SteadyTime copied{};

    /// When there was a server that takes writes again, and no other that seemed to.
    SteadyTime served() const {
        return replaced ? std::max(*replaced, refused.value_or(back)) : back;
    }
};

/// The faults of private servers in the middle of the load, as --fault gives them.
///
///   redis.pause, db.pause   SIGSTOP, and SIGCONT: connections stay, nothing is answered and nothing is
///                           lost
///   redis.kill9, db.kill9   SIGKILL to all processes of the server, and a start on what it left:
///                           connections break, calls in flight get no answer
///
/// Of a group of servers: managed_group.hpp.
class ServerFaults {
  public:
    /// The faults of a load whose warm-up begins at `start`. The servers outlive this; null: the
    /// strategy does not use this server.
    ServerFaults(const TrialSettings& settings, Managed* redis, Managed* database,
                 SteadyTime start);
    struct Ended {
        /// The outages that ended, or in which another server took over.
        std::vector<Outage> outages{};
        /// The fault that could not be made, or was not due when the load ended, and why.
        Result<void> done{};
    };
    /// Ends them: a server that is away is back when this returns, unless it cannot be started again.
    Ended stop();

  private:
    Result<void> run(const std::vector<Fault>& faults, Managed* redis, Managed* database,
                     SteadyTime from, const std::stop_token& ended);

    Ended ended_{};
    std::jthread thread_;  // Last: it ends before what it uses.
};

/// All that runs beside one load.
class BesideLoad {
  public:
    struct Found {
        ServerFaults::Ended faults{};
        Builds builds{};
        Histogram bystander_ns{};
    };

    /// The servers are the private ones that the strategy may use, and outlive this; null: none.
    static Result<BesideLoad> start(const TrialSettings& settings, Managed* redis,
                                    Managed* database);
    Found stop();

  private:
    std::unique_ptr<Bystander> bystander_{};
    std::unique_ptr<Rebuilder> rebuilder_{};
    std::unique_ptr<ServerFaults> faults_{};
};

// -- the work of the servers -----------------------------------------------------------------------
//
//   log       PostgreSQL: write-ahead log; MariaDB: redo log and binary log; MySQL: redo log;
//             Redis: append-only file
//   commits   transactions that wrote. PostgreSQL: transaction ids that were given out; MariaDB and
//             MySQL: trx_rw_commits; SQLite: those of this process
//   cpu       of private servers, all their processes
//
// On a server of the user's, the work of other clients is counted too. Used from one thread.

struct ServerWork {
    std::optional<double> log_bytes{};
    std::optional<double> commits{};
    std::optional<double> cpu_s{};
    std::vector<std::string> unknown{};  ///< Missing figures with reasons: "log: Redis keeps none".
};

class ServerMeter {
  public:
    /// Reads everything for the first time. The servers are the private ones that the strategy
    /// uses, and outlive this; null: none, or a server of the user's.
    ServerMeter(const TrialSettings& settings, Managed* redis, Managed* database);
    /// Since then. `spent` is what the target counted meanwhile.
    ServerWork work(const TargetStats& spent) const;

  private:
    /// Each a number, or the reason for which it is missing.
    struct Reading {
        Result<double> log{0.0};
        Result<double> commits{0.0};
        Result<double> cpu_s{0.0};
    };
    Reading read() const;

    TrialSettings settings_;
    Managed* redis_;
    Managed* database_;
    std::uint64_t starts_;  ///< Of the private servers, by the first reading.
    Reading first_;
};

}  // namespace hotcount::loadtest
