#include "report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "load/run_folder.hpp"
#include "load/words.hpp"
#include "machine.hpp"

namespace hotcount::loadtest {
namespace {

using nlohmann::json;

json describe(const Contract& contract, const std::string& strategy) {
    const auto known = find_strategy(strategy);
    return {{"strategy", contract.strategy},
            {"acknowledged", contract.acknowledged},
            {"may_lose", contract.may_lose},
            {"durable", contract.durable},
            {"exact", contract.exact},
            {"reads", known ? known->reads_if(contract.exact).str() : ""}};
}

/// Null: nothing was audited.
json audit_of(const TrialResult& trial) {
    return trial.audited ? audit_figures(trial.audit) : json(nullptr);
}

json describe(const Summary& summary) {
    json result = summary_figures(summary);
    result["strategy"] = summary.strategy;
    result["role"] = to_string(summary.role);
    result["overloaded"] = summary.overloaded;
    result["audit"] = summary.not_run() ? json(nullptr) : audit_figures(summary.audit);
    result["not_run"] = summary.not_run();
    result["verdict"] = summary.verdict();
    result["conclusion"] = to_string(summary.conclusion);
    result["reasons"] = summary.reasons;
    if (!summary.trials.empty()) {
        result["contract"] =
            describe(summary.trials[0].contract, summary.trials[0].settings.strategy);
        result["place"] = summary.trials[0].place;
    }
    json& trials = result["trials"] = json::array();
    for (const TrialResult& trial : summary.trials) {
        trials.push_back({{"started", trial.started},
                          {"result", trial_figures(trial)},
                          {"audit", audit_of(trial)},
                          {"verdict", trial.verdict()},
                          {"conclusion", to_string(trial.conclusion)},
                          {"reasons", trial.reasons}});
    }
    return result;
}

}  // namespace

json begin_document(std::string_view kind, const json& provenance) {
    json document = {{"schema", kSchema}, {"kind", kind}};
    document.update(provenance);
    return document;
}

void add_conclusion(json& document, Conclusion conclusion) {
    document["conclusion"] = to_string(conclusion);
    document["exit_code"] = exit_code(conclusion);
}

json trial_document(const TrialResult& trial) {
    json document = {{"started", trial.started},
                     {"settings", describe_settings(trial.settings)},
                     {"place", trial.place},
                     {"contract", describe(trial.contract, trial.settings.strategy)}};
    if (trial.state == RunState::running) return document;
    document["result"] = trial_figures(trial);
    document["audit"] = audit_of(trial);
    for (const Checked& one : trial.checked) {
        document["thresholds"].push_back({{"threshold", one.threshold.text},
                                          {"found", one.found ? json(*one.found) : json(nullptr)},
                                          {"unit", one.unit},
                                          {"figure", one.figure},
                                          {"met", one.met},
                                          {"too_few", one.too_few}});
    }
    document["verdict"] = trial.verdict();
    document["conclusion"] = to_string(trial.conclusion);
    document["reasons"] = trial.reasons;
    return document;
}

json describe_provenance(const std::vector<std::string>& command_line) {
    return {{"command", command_line},
            {"versions", describe_versions()},
            {"machine", describe_machine()}};
}

std::string_view to_string(RunState state) {
    return word_of(state, {"running", "measured", "finished"});
}

json run_document(const TrialResult& trial, const json& provenance) {
    json document = begin_document("run", provenance);
    document.update(trial_document(trial));
    document["state"] = to_string(trial.state);
    if (trial.state != RunState::running) add_conclusion(document, trial.conclusion);
    return document;
}

Result<TrialSettings> trial_settings_of(const json& document) {
    const auto refuse = [](const std::string& why) {
        return make_error(ErrorCode::config, fmt::format("{}: {}", kRunFile, why));
    };
    try {
        const auto schema = document.value("schema", std::string{});
        if (schema != kSchema) {
            return refuse(
                fmt::format("it has schema '{}', this program knows '{}'", schema, kSchema));
        }
        auto settings = settings_of(document.at("settings"));
        if (!settings) return refuse(settings.error().message);
        return settings;
    } catch (const json::exception& wrong) {
        return refuse(wrong.what());
    }
}

json compare_document(const Comparison& comparison, const json& provenance) {
    json document = begin_document("compare", provenance);
    document["started"] = comparison.started;
    document["notes"] = comparison.notes;
    json& parts = document["parts"] = json::array();
    for (const PartResult& result : comparison.parts) {
        const std::string& database = result.part.database;
        json part = {{"name", result.part.name},
                     {"database", database.empty() ? json(nullptr) : json(database)},
                     {"rounds", result.part.rounds},
                     {"baseline", result.part.baseline},
                     {"settings", describe_settings(result.part.settings)},
                     {"baseline_callers", json::array()},
                     {"notes", result.notes},
                     {"conclusion", to_string(result.conclusion)}};
        part["settings"].erase("strategy");
        for (const CallersTried& tried : result.tried) {
            part["baseline_callers"].push_back(
                {{"callers", tried.callers}, {"per_s", tried.per_s}});
        }
        json& strategies = part["strategies"] = json::array();
        // The baseline once more, and with its best number of callers.
        json& references = part["references"] = json::array();
        for (const Summary& summary : result.summaries) {
            (summary.role == Role::named ? strategies : references).push_back(describe(summary));
        }
        parts.push_back(std::move(part));
    }
    add_conclusion(document, comparison.conclusion);
    return document;
}

json audit_document(const std::vector<FolderAudit>& audits, const json& provenance,
                    Conclusion conclusion) {
    json document = begin_document("audit", provenance);
    json& runs = document["runs"] = json::array();
    for (const FolderAudit& audit : audits) {
        runs.push_back({{"folder", audit.folder.string()},
                        {"state", audit.state},
                        {"settings", describe_settings(audit.settings)},
                        {"contract", describe(audit.contract, audit.settings.strategy)},
                        {"audit", audit.audited ? audit_figures(audit.result) : json(nullptr)},
                        {"conclusion", to_string(audit.conclusion)},
                        {"reasons", audit.reasons}});
    }
    add_conclusion(document, conclusion);
    return document;
}

}  // namespace hotcount::loadtest
