// Another client of the Redis under load: it asks for a small thing every millisecond and is timed.
//
// What it waits is what the load costs everybody else: a server runs one command at a time, so a long
// script keeps all others waiting.
#pragma once

#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <thread>

#include "load/histogram.hpp"
#include "load/settings.hpp"

namespace hotcount::loadtest {

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

}  // namespace hotcount::loadtest
