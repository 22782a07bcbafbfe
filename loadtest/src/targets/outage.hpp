// A Redis that stands still in the middle of the load, and goes on as if nothing had been.
//
// It is stopped (SIGSTOP): connections stay, nothing is answered and nothing is lost. Only a server
// that this program started is stopped.
#pragma once

#include <sys/types.h>

#include <hotcount/result.hpp>
#include <memory>
#include <thread>

#include "load/settings.hpp"

namespace hotcount::loadtest {

class Outage {
  public:
    /// Begins after a third of the load, from now on, and lasts for settings.outage.
    static Result<std::unique_ptr<Outage>> start(const TrialSettings& settings);
    /// The server goes on, if it has not yet.
    ~Outage() = default;

  private:
    Outage() = default;

    std::jthread thread_{};
};

}  // namespace hotcount::loadtest
