// What a trial and an audit of its folder share: private to this folder.
#pragma once

#include <hotcount/result.hpp>
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

/// Why no audit is possible where agents vanished with their parts of the load; success: all that the
/// others did can be audited, as a plan that has an end says all that the missing ones may have sent.
Result<void> can_audit_without_parts(const TrialSettings& settings);

}  // namespace hotcount::loadtest
