// Builds sorted sets anew beside the load that writes to them, as the process does that fills them.
//
// What a build adds is the set itself, read once the build has begun: so each member must have the
// score of its last upsert afterwards, as without builds, and the audit need not know of them.
#pragma once

#include <cstdint>
#include <hotcount/live_sets.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <thread>

#include "load/settings.hpp"

namespace hotcount::loadtest {

/// Of one trial, its warm-up included.
struct Builds {
    std::uint64_t published{0};
    std::uint64_t failed{0};  ///< Not published, or perhaps not.
};

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

}  // namespace hotcount::loadtest
