// The figures of a report, as JSON and as tables for people. Both come from the list in columns.cpp.
//
// Pure functions; they may be called from any thread.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compare.hpp"
#include "numbers.hpp"
#include "trial.hpp"

namespace hotcount::loadtest {

/// The figures of one trial: "result" in run.json.
nlohmann::json trial_figures(const TrialResult& trial);
/// The figures of a strategy over all rounds: a member of "strategies" in compare.json.
nlohmann::json summary_figures(const Summary& summary);
/// What an audit found: "audit" in every document.
nlohmann::json audit_figures(const AuditResult& audit);

/// `run`: the load, and then what its audit found.
Table run_table(const TrialResult& trial);
/// The times of each kind of call and outcome, as they were: the first table counts what failed as
/// slower than the time limit.
Table outcome_table(const TrialResult& trial);
Table run_audit_table(const TrialResult& trial);
/// `compare`: a row for each strategy, the load and the audit.
Table comparison_table(const PartResult& result);
/// `audit`: a row for each run folder.
Table folder_audit_table(const std::vector<FolderAudit>& audits);

/// A time in the unit that the tables of this load have, such as "1.23 ms".
std::string time_text(const TrialSettings& settings, std::int64_t ns);

}  // namespace hotcount::loadtest
