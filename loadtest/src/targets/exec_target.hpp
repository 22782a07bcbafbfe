// The target of a strategy of the user's own: driver_session.hpp has its protocol.
#pragma once

#include <filesystem>
#include <hotcount/result.hpp>
#include <memory>

#include "load/settings.hpp"
#include "target.hpp"

namespace hotcount::loadtest {

/// An empty `folder` is refused: a run that comes over a network starts no program here.
/// `fresh`: it makes its tables; otherwise it finds those of an earlier run in the same folder.
Result<std::unique_ptr<Target>> make_exec_target(const TrialSettings& settings,
                                                 const Strategy& strategy,
                                                 const std::filesystem::path& folder, bool fresh);

}  // namespace hotcount::loadtest
