// What is done to the private servers in the middle of the load, as --fault says.
//
//   redis.pause, db.pause   SIGSTOP, and SIGCONT: connections stay, nothing is answered and nothing is
//                           lost
//   redis.kill9, db.kill9   SIGKILL to all processes of the server, and a start on what it left:
//                           connections break, nobody is told of what was under way
#pragma once

#include <chrono>
#include <hotcount/result.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "load/settings.hpp"
#include "managed_server.hpp"

namespace hotcount::loadtest {

/// One fault as it went.
struct Outage {
    Fault fault{};
    Duration from{0};  ///< When the server went away, from the start of the load on.
    Duration back{0};  ///< When it answered again, or went on.
};

class ServerFaults {
  public:
    /// Of a load whose warm-up begins at `start`. The servers outlive this; null: what the strategy does
    /// not use, to which nothing is done.
    ServerFaults(const TrialSettings& settings, ManagedServer* redis, ManagedServer* database,
                 SteadyTime start);
    /// Ends them: a server that is away is back when this returns. Those that there were; an error if
    /// the server could not be started again.
    Result<std::vector<Outage>> stop();

  private:
    std::vector<Outage> done_{};
    Result<void> failed_{};
    std::jthread thread_;  // Last: it ends before what it uses.
};

}  // namespace hotcount::loadtest
