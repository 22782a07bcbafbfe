// Targets over a store, memory or Redis: counters, limiters and sorted sets.
#pragma once

#include <hotcount/result.hpp>
#include <memory>

#include "load/settings.hpp"
#include "target.hpp"

namespace hotcount::loadtest {

/// A limit that the strategy's algorithm does not take is a config error, before anything runs.
Result<void> check_limit(const Rate& limit, const Strategy& strategy);

Result<std::unique_ptr<Target>> make_store_target(const TrialSettings& settings,
                                                  const Strategy& strategy);

/// Counters that a run left on a server; all else went with its run, and is refused by name.
Result<std::unique_ptr<Target>> reopen_store_target(const TrialSettings& settings,
                                                    const Strategy& strategy);

}  // namespace hotcount::loadtest
