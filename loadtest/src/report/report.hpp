// The reports of a command: figures from the list in columns.cpp, JSON documents that hold them,
// and tables for people.
//
// The documents have the schema "hotcount-load/1":
//
//   { "schema", "kind": "run" | "compare" | "audit", "state", "started", "command", "versions",
//     "machine", ... , "conclusion", "exit_code" }
//
// A field's unit is the end of its name: _s, _us, _per_s, _bytes. Fields are added to a schema
// version, never changed or removed.
//
// Pure functions; they may be called from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <hotcount/result.hpp>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "compare.hpp"
#include "load/settings.hpp"
#include "numbers.hpp"
#include "trial.hpp"

namespace hotcount::loadtest {

// -- figures (figures.cpp) ------------------------------------------------------------------------

/// The figures of one trial: "result" in run.json.
nlohmann::json trial_figures(const TrialResult& trial);
/// The figures of a strategy over all rounds: a member of "strategies" in compare.json.
nlohmann::json summary_figures(const Summary& summary);
/// The findings of an audit: "audit" in every document.
nlohmann::json audit_figures(const AuditResult& audit);

/// `run`: the load, and then what its audit found.
Table run_table(const TrialResult& trial);
/// The measured times of each kind of call and outcome; run_table() counts a failed call as slower
/// than the time limit.
Table outcome_table(const TrialResult& trial);
Table run_audit_table(const TrialResult& trial);
/// `compare`: a row for each strategy, the load and the audit.
Table comparison_table(const PartResult& result);
/// `audit`: a row for each run folder.
Table folder_audit_table(const std::vector<FolderAudit>& audits);

/// A time in the unit that the tables of this load have, such as "1.23 ms".
std::string time_text(const TrialSettings& settings, std::int64_t ns);
/// The name of a workload's writes: votes, adds, hits, upserts.
std::string writes_name(WorkloadKind workload);

// -- tables for a terminal (short_tables.cpp) -----------------------------------------------------

inline constexpr std::size_t kColumns = 100;
/// Breaks lines longer than kColumns between words and indents their rest by `hanging` spaces; 0: by
/// two more than the line.
std::string wrapped(const std::string& text, std::size_t hanging = 0);
/// The figures that decide, a rate as a bar, and a sentence for all that is 0 everywhere.
std::string short_comparison(const PartResult& result);
std::string short_run(const TrialResult& trial);
/// How calls without a success stand in the percentiles.
std::string failed_in_percentiles(const TrialSettings& settings);

// -- documents (report_json.cpp) ------------------------------------------------------------------

inline constexpr const char* kSchema = "hotcount-load/1";

/// The facts that do not depend on the trial: the exact command, versions, the machine.
nlohmann::json describe_provenance(const std::vector<std::string>& command_line);

/// The beginning of every document of a command, and its end.
nlohmann::json begin_document(std::string_view kind, const nlohmann::json& provenance);
void add_conclusion(nlohmann::json& document, Conclusion conclusion);
/// A trial as a member of a document; while its load runs, without figures.
nlohmann::json trial_document(const TrialResult& trial);

/// run.json, and the output of `run --json`. While the load runs, it has the settings only. A run
/// without an audit has null for it.
nlohmann::json run_document(const TrialResult& trial, const nlohmann::json& provenance);
/// The settings of a run document. An error if it is not one, or of another schema version.
Result<TrialSettings> trial_settings_of(const nlohmann::json& document);

/// compare.json, and the output of `compare --json`.
nlohmann::json compare_document(const Comparison& comparison, const nlohmann::json& provenance);

/// The output of `audit --json`.
nlohmann::json audit_document(const std::vector<FolderAudit>& audits,
                              const nlohmann::json& provenance, Conclusion conclusion);

// -- texts (report_text.cpp, closing_text.cpp) ----------------------------------------------------

// `wide`: with all columns and contracts; else in kColumns.
std::string run_text(const TrialResult& trial, bool wide = true);
/// A comparison: its title, each part as soon as it has run, and what follows all of them.
std::string title_text(const std::string& title);
std::string part_text(const PartResult& result, bool wide);
std::string conclusion_text(const Comparison& comparison, bool wide);
/// The last sentences of a comparison. Of the first load that was compared, on each of several
/// databases: the fastest strategy, and by how much.
std::string fastest_sentences(const Comparison& comparison);
/// Says whether a write was lost. `all`: the findings of the audits, of `audited` of `runs` runs.
std::string lost_sentence(const Comparison& comparison, std::size_t audited, std::size_t runs,
                          const AuditResult& all);
std::string audit_text(const std::vector<FolderAudit>& audits);

// -- the page of --html, which `hotcount report` draws of a folder (html_report.cpp) --------------

/// The command `hotcount`, beside this program or on PATH, that can draw. ErrorCode::config says
/// what is missing, or that `file` cannot be made: it is asked before the load, because afterwards
/// would be late.
Result<std::filesystem::path> find_drawer(const std::filesystem::path& file);

/// Writes the page of the folder to `file`. Waits for the command to end: a second or two.
Result<void> write_html(const std::filesystem::path& drawer, const std::filesystem::path& folder,
                        const std::filesystem::path& file);

}  // namespace hotcount::loadtest
