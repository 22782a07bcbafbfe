// What stands between the load and a strategy's driver: processes of their own, and batches.
#pragma once

#include <hotcount/result.hpp>
#include <memory>

#include "batches.hpp"
#include "driver.hpp"
#include "processes.hpp"
#include "runner.hpp"
#include "settings.hpp"

namespace hotcount::loadtest {

/// The load that a trial's settings ask for.
LoadSettings load_settings(const TrialSettings& settings, UnvoteValue unvote);

class Callers {
  public:
    /// Processes are forked, and have called `driver` once each, when this returns: the first call of
    /// none of them falls into the load. `driver` must outlive this.
    static Result<Callers> start(const TrialSettings& settings, Driver& driver);

    Driver& driver() { return *driver_; }
    /// Ends them, after the load; what was done to the processes.
    Processes::Faults stop();

  private:
    explicit Callers(Driver& driver) : driver_(&driver) {}

    Driver* driver_;
    std::unique_ptr<Processes> processes_{};
    std::unique_ptr<Batches> batches_{};  // Last: it calls the processes.
};

}  // namespace hotcount::loadtest
