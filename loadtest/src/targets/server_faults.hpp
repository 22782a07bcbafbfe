// What is done to the private Redis in the middle of the load, as --fault says.
//
//   redis.pause   SIGSTOP, and SIGCONT: connections stay, nothing is answered and nothing is lost
//   redis.kill9   SIGKILL, and a start on what it left: connections break, nobody is told of what was
//                 under way
#pragma once

#include <cstdint>
#include <hotcount/result.hpp>
#include <memory>
#include <thread>

#include "load/settings.hpp"
#include "managed_server.hpp"

namespace hotcount::loadtest {

class ServerFaults {
  public:
    /// Of a load whose warm-up begins at `start`. `redis` outlives this.
    ServerFaults(const TrialSettings& settings, ManagedServer& redis, SteadyTime start);
    /// Ends them: a server that is away is back when this returns. How many there were; an error if
    /// the server could not be started again.
    Result<std::uint64_t> stop();

  private:
    std::uint64_t done_{0};
    Result<void> failed_{};
    std::jthread thread_;  // Last: it ends before what it uses.
};

}  // namespace hotcount::loadtest
