#include "report_json.hpp"

#include <fmt/core.h>

#include <chrono>
#include <utility>

#include "figures.hpp"
#include "load/run_folder.hpp"
#include "machine.hpp"

namespace hotcount::loadtest {
namespace {

using nlohmann::json;

double in_s(Duration duration) { return std::chrono::duration<double>(duration).count(); }
json describe(const Mix& mix) {
    return {{"vote", mix.vote}, {"unvote", mix.unvote}, {"read", mix.read}};
}

json describe(const TrialSettings& settings) {
    const bool open = settings.arrival != Arrival::closed;
    return {{"workload", to_string(settings.workload)},
            {"strategy", settings.strategy},
            {"arrival", to_string(settings.arrival)},
            {"rate_per_s", open ? json(settings.rate_per_s) : json(nullptr)},
            {"workers", settings.workers},
            {"in_flight", settings.in_flight},
            {"warmup_s", in_s(settings.warmup)},
            {"duration_s", in_s(settings.duration)},
            {"timeout_s", in_s(settings.timeout)},
            {"items", settings.traffic.items},
            {"zipf", settings.traffic.zipf},
            {"users", settings.traffic.users},
            {"mix", describe(settings.traffic.mix)},
            {"dup", settings.traffic.dup},
            {"seed", settings.traffic.seed},
            {"max_errors", settings.max_errors},
            {"max_operations", settings.max_operations},
            {"database_url", without_password(settings.database_url)},
            {"managed_database", settings.managed_database},
            {"redis_url", without_password(settings.redis_url)},
            {"managed_redis", settings.managed_redis},
            {"key_prefix", settings.key_prefix},
            {"life_s", in_s(settings.life)},
            {"gate_s", settings.gate ? json(in_s(*settings.gate)) : json(nullptr)},
            {"batch", settings.batch},
            {"slots", settings.slots},
            {"processes", settings.processes},
            {"kill_every_s", in_s(settings.kill_every)},
            {"stall_s", in_s(settings.stall)},
            {"faults", format_faults(settings.faults)},
            {"rebuild_every_s", in_s(settings.rebuild_every)},
            {"bystander", settings.bystander},
            {"limit", settings.limit.str()}};
}

json describe(const Contract& contract) {
    return {{"strategy", contract.strategy},
            {"acknowledged", contract.acknowledged},
            {"may_lose", contract.may_lose},
            {"durable", contract.durable},
            {"exact", contract.exact}};
}

json envelope(std::string_view kind, const json& provenance) {
    json document = {{"schema", kSchema}, {"kind", kind}};
    document.update(provenance);
    return document;
}

void add_conclusion(json& document, Conclusion conclusion) {
    document["conclusion"] = to_string(conclusion);
    document["exit_code"] = static_cast<int>(conclusion);
}

/// Null: nothing was audited.
json audit_of(const TrialResult& trial) {
    return trial.audited ? audit_figures(trial.audit) : json(nullptr);
}

json describe(const Summary& summary) {
    json result = summary_figures(summary);
    result["strategy"] = summary.strategy;
    result["overloaded"] = summary.overloaded;
    result["audit"] = audit_figures(summary.audit);
    result["conclusion"] = to_string(summary.conclusion);
    result["reasons"] = summary.reasons;
    if (!summary.trials.empty()) {
        result["contract"] = describe(summary.trials[0].contract);
        result["place"] = summary.trials[0].place;
    }
    json& trials = result["trials"] = json::array();
    for (const TrialResult& trial : summary.trials) {
        trials.push_back({{"started", trial.started},
                          {"result", trial_figures(trial)},
                          {"audit", audit_of(trial)},
                          {"conclusion", to_string(trial.conclusion)},
                          {"reasons", trial.reasons}});
    }
    return result;
}

}  // namespace

json describe_provenance(const std::vector<std::string>& command_line) {
    return {{"command", command_line},
            {"versions", describe_versions()},
            {"machine", describe_machine()}};
}

std::string_view to_string(RunState state) {
    switch (state) {
        case RunState::running:
            return "running";
        case RunState::measured:
            return "measured";
        case RunState::finished:
            return "finished";
    }
    return "?";
}

json run_document(const TrialResult& trial, const json& provenance) {
    json document = envelope("run", provenance);
    document["state"] = to_string(trial.state);
    document["started"] = trial.started;
    document["settings"] = describe(trial.settings);
    document["place"] = trial.place;
    document["contract"] = describe(trial.contract);
    if (trial.state == RunState::running) return document;
    document["result"] = trial_figures(trial);
    document["audit"] = audit_of(trial);
    document["reasons"] = trial.reasons;
    add_conclusion(document, trial.conclusion);
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
        const json& from = document.at("settings");
        const auto duration = [&](const char* name) {
            return std::chrono::duration_cast<Duration>(
                std::chrono::duration<double>(from.at(name).get<double>()));
        };
        TrialSettings settings;
        HOTCOUNT_TRY_ASSIGN(settings.workload,
                            parse_workload(from.at("workload").get<std::string>()));
        HOTCOUNT_TRY_ASSIGN(settings.arrival, parse_arrival(from.at("arrival").get<std::string>()));
        from.at("strategy").get_to(settings.strategy);
        if (from.at("rate_per_s").is_number()) from.at("rate_per_s").get_to(settings.rate_per_s);
        from.at("workers").get_to(settings.workers);
        settings.in_flight = from.value("in_flight", settings.in_flight);
        settings.warmup = duration("warmup_s");
        settings.duration = duration("duration_s");
        settings.timeout = duration("timeout_s");
        from.at("items").get_to(settings.traffic.items);
        from.at("zipf").get_to(settings.traffic.zipf);
        from.at("users").get_to(settings.traffic.users);
        from.at("mix").at("vote").get_to(settings.traffic.mix.vote);
        from.at("mix").at("unvote").get_to(settings.traffic.mix.unvote);
        from.at("mix").at("read").get_to(settings.traffic.mix.read);
        from.at("dup").get_to(settings.traffic.dup);
        from.at("seed").get_to(settings.traffic.seed);
        from.at("max_operations").get_to(settings.max_operations);
        settings.max_errors = from.value("max_errors", settings.max_errors);
        from.at("database_url").get_to(settings.database_url);
        // Runs before there was Redis do not have these.
        settings.redis_url = from.value("redis_url", "");
        settings.managed_redis = from.value("managed_redis", false);
        settings.managed_database = from.value("managed_database", false);
        settings.key_prefix = from.value("key_prefix", "");
        if (from.contains("life_s")) settings.life = duration("life_s");
        if (from.contains("gate_s") && from.at("gate_s").is_number()) {
            settings.gate = duration("gate_s");
        }
        settings.batch = from.value("batch", settings.batch);
        settings.slots = from.value("slots", settings.slots);
        settings.processes = from.value("processes", settings.processes);
        if (from.contains("kill_every_s")) settings.kill_every = duration("kill_every_s");
        if (from.contains("stall_s")) settings.stall = duration("stall_s");
        if (const auto faults = from.value("faults", ""); !faults.empty()) {
            HOTCOUNT_TRY_ASSIGN(settings.faults, parse_faults(faults));
        }
        if (from.contains("rebuild_every_s")) settings.rebuild_every = duration("rebuild_every_s");
        settings.bystander = from.value("bystander", false);
        if (from.contains("limit")) {
            HOTCOUNT_TRY_ASSIGN(settings.limit, Rate::parse(from.at("limit").get<std::string>()));
        }
        return settings;
    } catch (const json::exception& wrong) {
        return refuse(wrong.what());
    }
}

json compare_document(const Comparison& comparison, const json& provenance) {
    json document = envelope("compare", provenance);
    document["started"] = comparison.started;
    document["notes"] = comparison.notes;
    json& parts = document["parts"] = json::array();
    for (const PartResult& result : comparison.parts) {
        json part = {{"name", result.part.name},
                     {"rounds", result.part.rounds},
                     {"baseline", result.part.baseline},
                     {"settings", describe(result.part.settings)},
                     {"conclusion", to_string(result.conclusion)}};
        part["settings"].erase("strategy");
        json& strategies = part["strategies"] = json::array();
        for (const Summary& summary : result.summaries) strategies.push_back(describe(summary));
        parts.push_back(std::move(part));
    }
    add_conclusion(document, comparison.conclusion);
    return document;
}

json audit_document(const std::vector<FolderAudit>& audits, const json& provenance,
                    Conclusion conclusion) {
    json document = envelope("audit", provenance);
    json& runs = document["runs"] = json::array();
    for (const FolderAudit& audit : audits) {
        runs.push_back({{"folder", audit.folder.string()},
                        {"state", audit.state},
                        {"settings", describe(audit.settings)},
                        {"contract", describe(audit.contract)},
                        {"audit", audit_figures(audit.result)},
                        {"conclusion", to_string(audit.conclusion)},
                        {"reasons", audit.reasons}});
    }
    add_conclusion(document, conclusion);
    return document;
}

}  // namespace hotcount::loadtest
