// Slotted counters on SQL.
#pragma once

#include <filesystem>
#include <hotcount/result.hpp>
#include <memory>

#include "load/settings.hpp"
#include "target.hpp"

namespace hotcount::loadtest {

/// `fresh`: for a new run, which makes its table and refuses one in use; otherwise that of an earlier
/// run, to audit it.
Result<std::unique_ptr<Target>> make_slots_target(const TrialSettings& settings,
                                                  const Strategy& strategy,
                                                  const std::filesystem::path& folder, bool fresh);

}  // namespace hotcount::loadtest
