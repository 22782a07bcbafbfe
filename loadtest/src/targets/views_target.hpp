// Counts that are written behind: on Redis, brought to SQL by a worker.
#pragma once

#include <filesystem>
#include <hotcount/result.hpp>
#include <memory>

#include "load/settings.hpp"
#include "target.hpp"

namespace hotcount::loadtest {

/// `fresh`: for a new run, which makes its tables and refuses those in use; otherwise that of an
/// earlier run, to audit it.
Result<std::unique_ptr<Target>> make_views_target(const TrialSettings& settings,
                                                  const Strategy& strategy,
                                                  const std::filesystem::path& folder, bool fresh);

}  // namespace hotcount::loadtest
