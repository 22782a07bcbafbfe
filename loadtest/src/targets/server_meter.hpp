// What the servers paid for a load: log that they wrote, transactions that they committed, and their
// processor time.
//
//   log       PostgreSQL: write-ahead log; MariaDB: redo log and binary log; MySQL: redo log; Redis:
//             append-only file
//   commits   transactions that wrote. PostgreSQL: transaction ids that were given out; MariaDB and
//             MySQL: trx_rw_commits; SQLite: those of this process
//   cpu       of private servers, all their processes
//
// What else uses a server of the user's is counted too. Used from one thread.
#pragma once

#include <hotcount/result.hpp>
#include <optional>
#include <string>
#include <vector>

#include "load/settings.hpp"
#include "managed_server.hpp"
#include "target.hpp"

namespace hotcount::loadtest {

struct ServerWork {
    std::optional<double> log_bytes{};
    std::optional<double> commits{};
    std::optional<double> cpu_s{};
    std::vector<std::string> unknown{};  ///< What is not known, and why: "log: Redis keeps none".
};

class ServerMeter {
  public:
    /// Reads everything for the first time. The servers are the private ones that the strategy uses,
    /// and outlive this; null: none, or somebody else's.
    ServerMeter(const TrialSettings& settings, Managed* redis, Managed* database);
    /// Since then. `spent` is what the target counted meanwhile.
    ServerWork work(const TargetStats& spent) const;

  private:
    /// Each a number, or why there is none.
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
