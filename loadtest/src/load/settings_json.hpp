// The settings of a trial as JSON, in run.json.
#pragma once

#include <hotcount/result.hpp>
#include <nlohmann/json.hpp>

#include "settings.hpp"

namespace hotcount::loadtest {

/// Without passwords: a URL that has one is redacted.
nlohmann::json describe_settings(const TrialSettings& settings);

/// What describe_settings() made, also by an older program.
Result<TrialSettings> settings_of(const nlohmann::json& from);

}  // namespace hotcount::loadtest
