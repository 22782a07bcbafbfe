// The machine-readable form of everything: schema "hotcount-load/1".
//
//   { "schema", "kind": "run" | "compare" | "audit", "state", "started", "command", "versions",
//     "machine", ... , "conclusion", "exit_code" }
//
// A field's unit is the end of its name: _s, _us, _per_s, _bytes. Fields are added to a schema
// version, never changed or removed.
#pragma once

#include <hotcount/result.hpp>
#include <nlohmann/json.hpp>
#include <string_view>
#include <vector>

#include "compare.hpp"
#include "load/settings.hpp"
#include "trial.hpp"

namespace hotcount::loadtest {

inline constexpr const char* kSchema = "hotcount-load/1";

/// What does not depend on the trial: the exact command, versions, the machine.
nlohmann::json describe_provenance(const std::vector<std::string>& command_line);

/// The beginning of every document of a command, and its end.
nlohmann::json begin_document(std::string_view kind, const nlohmann::json& provenance);
void add_conclusion(nlohmann::json& document, Conclusion conclusion);
/// A trial as a member of a document.
nlohmann::json trial_document(const TrialResult& trial);

/// The times of a histogram, for percentiles of all kinds: the end of each cell in units, and how many
/// lie in it.
nlohmann::json cells_of(const Histogram& times, double unit_ns);

/// run.json, and what `run --json` prints. While it runs: settings only. What was not audited has
/// null for its audit.
nlohmann::json run_document(const TrialResult& trial, const nlohmann::json& provenance);
/// The settings of such a document. An error if it is none, or of another schema version.
Result<TrialSettings> trial_settings_of(const nlohmann::json& document);

/// compare.json, and what `compare --json` prints.
nlohmann::json compare_document(const Comparison& comparison, const nlohmann::json& provenance);

/// What `audit --json` prints.
nlohmann::json audit_document(const std::vector<FolderAudit>& audits,
                              const nlohmann::json& provenance, Conclusion conclusion);

}  // namespace hotcount::loadtest
