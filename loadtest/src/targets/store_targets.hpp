// Targets over a store, memory or Redis: counters, limiters and sorted sets.
#pragma once

#include <filesystem>
#include <hotcount/result.hpp>
#include <memory>

#include "load/settings.hpp"
#include "target.hpp"

namespace hotcount::loadtest {

/// A limit that the strategy's algorithm does not take is a config error, before anything runs.
Result<void> check_limit(const Rate& limit, const Strategy& strategy);

Result<std::unique_ptr<Target>> make_store_target(const TrialSettings& settings,
                                                  const Strategy& strategy);

/// What a run left on a Redis. Refused, with the reason, if it cannot be what it left any more.
Result<std::unique_ptr<Target>> reopen_store_target(const TrialSettings& settings,
                                                    const Strategy& strategy,
                                                    const std::filesystem::path& folder);

}  // namespace hotcount::loadtest
