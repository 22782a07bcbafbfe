// What a trial, an audit of its folder and the end of the program share.
#pragma once

#include <hotcount/result.hpp>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "checkers/checker.hpp"
#include "load/ledger.hpp"
#include "load/settings.hpp"
#include "targets/target.hpp"

namespace hotcount::loadtest {

bool on_redis(const TrialSettings& settings);

/// What the audit found, in words.
std::string broken_reason(const AuditResult& audit);

/// What is there, and what callers were told.
Result<AuditResult> audit_all(Target& target, const Ledger& ledger);

/// Why nobody can audit the run of a user's own program again, by what the program said of itself, as
/// run.json has it; none if one can.
std::optional<std::string> why_driver_not_again(const nlohmann::json& run);

}  // namespace hotcount::loadtest
