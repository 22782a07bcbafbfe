// Run folders audited again, whatever became of their runs.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <hotcount/detail/base/check.hpp>
#include <utility>

#include "checkers/audit.hpp"
#include "load/run_folder.hpp"
#include "report.hpp"
#include "targets/managed_server.hpp"
#include "trial.hpp"

namespace hotcount::loadtest {

namespace fs = std::filesystem;

std::optional<std::string> why_not_again(const TrialSettings& settings, const Strategy& strategy) {
    if (!settings.tables.empty()) {
        return "the votes were taken out of the tables after the audit, because they are your own";
    }
    if (strategy.store == StrategyStore::memory) {
        return "the counts are in the memory of the run, which ends with it";
    }
    if (settings.managed_redis && names_a_group(settings.redis_url) &&
        strategy.store == StrategyStore::redis) {
        return "the keys are in the private servers of the run, which end with it; --redis with "
               "servers of yours, or --managed redis, keeps them";
    }
    if (settings.managed_database && strategy.on_sql()) {
        return "the votes or counts are in the private database of the run, which ends with it; "
               "--db with a server of yours, or without one SQLite in the folder, keeps them";
    }
    return std::nullopt;
}

std::optional<std::string> why_driver_not_again(const nlohmann::json& run) {
    const nlohmann::json::json_pointer durable("/contract/durable");
    if (!run.contains(durable) || run.at(durable) != false) return std::nullopt;
    return "the program says that its votes end with it (durable=False)";
}

namespace {

/// Refuses a load that several agents drove: the ledger may lack what some of them sent.
Result<void> refuse_agents(const nlohmann::json& run) {
    const auto agents = run.at("settings").value("agents", nlohmann::json::array());
    if (agents.empty()) return {};
    return make_error(
        ErrorCode::config,
        fmt::format(
            "audit impossible: the load was driven by the agents {}, a format that is not read "
            "any more; {}",
            agents.dump(), kLastReader));
}

/// Why the ledger is not the one that the run wrote, or was damaged since; success: it may be.
Result<void> check_ledger(const Ledger& ledger, const nlohmann::json& run,
                          const TrialSettings& settings) {
    const auto impossible = [](const std::string& why) {
        return make_error(ErrorCode::config,
                          fmt::format("audit impossible: {} {}", kLedgerFile, why));
    };
    if (ledger.seed() != settings.traffic.seed) {
        return impossible(fmt::format("is of another run: it has seed {}, {} says {}",
                                      ledger.seed(), kRunFile, settings.traffic.seed));
    }
    std::uint64_t ended = 0;
    for (std::uint64_t index = 0; index < ledger.planned(); ++index) {
        const LedgerRecord& record = ledger[index];
        const Status status = record.load_status();
        if (status == Status::empty) continue;
        const auto damaged = [&](const std::string& why) {
            return impossible(fmt::format("is damaged: call {} has {}", index, why));
        };
        if (status > Status::unknown) {
            return damaged(fmt::format("status {}", static_cast<std::uint32_t>(status)));
        }
        if (record.kind > OperationKind::read) {
            return damaged(fmt::format("kind {}", static_cast<unsigned>(record.kind)));
        }
        if (record.item < 1 || static_cast<std::uint64_t>(record.item) > settings.traffic.items) {
            return damaged(fmt::format("item {}, and the run had 1 to {}", record.item,
                                       settings.traffic.items));
        }
        if (status < Status::ok) continue;
        ++ended;
        if (record.done_ns < record.sent_ns) return damaged("an answer from before its sending");
    }
    const nlohmann::json::json_pointer sent("/result/operations/sent_in_whole_run");
    if (!run.contains(sent) || run.at(sent) == ended) return {};
    return impossible(fmt::format("is of another run or damaged: {} calls of it ended, {} says {}",
                                  ended, kRunFile, run.at(sent).dump()));
}

FolderAudit nothing_sent(FolderAudit audit) {
    audit.audited = false;
    audit.conclusion = Conclusion::inconclusive;
    audit.reasons.emplace_back("the run ended before its first write: there is nothing to audit");
    return audit;
}

}  // namespace

Result<FolderAudit> audit_folder(const fs::path& folder, const std::string& redis_url,
                                 const std::string& database_url) {
    FolderAudit audit;
    audit.folder = folder;
    HOTCOUNT_TRY_ASSIGN(const nlohmann::json document, read_json(folder / kRunFile));
    HOTCOUNT_TRY_ASSIGN(audit.settings, trial_settings_of(document));
    audit.state = document.value("state", "");
    if (!redis_url.empty()) {
        audit.settings.redis_url = redis_url;
    } else if (is_redacted(audit.settings.redis_url)) {
        return make_error(ErrorCode::config,
                          fmt::format("{} has no password for {}: name it with --redis", kRunFile,
                                      audit.settings.redis_url));
    }
    if (!database_url.empty()) {
        audit.settings.database_url = database_url;
    } else if (is_redacted(audit.settings.database_url)) {
        return make_error(ErrorCode::config,
                          fmt::format("{} has no password for {}: name it with --db", kRunFile,
                                      audit.settings.database_url));
    }
    std::error_code unreadable;
    const bool begun = fs::exists(folder / kLedgerFile, unreadable) || unreadable;
    if (audit.state == "running" && !begun) return nothing_sent(std::move(audit));
    HOTCOUNT_TRY_ASSIGN(const std::unique_ptr<Ledger> ledger, Ledger::open(folder / kLedgerFile));
    HOTCOUNT_TRY(refuse_agents(document));
    HOTCOUNT_TRY(check_ledger(*ledger, document, audit.settings));
    if (nothing_was_sent(*ledger)) return nothing_sent(std::move(audit));
    HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(audit.settings.strategy));
    // A database URL from the caller replaces the private database, which ended with the run.
    audit.settings.managed_database = audit.settings.managed_database && database_url.empty();
    auto why = why_not_again(audit.settings, strategy);
    if (!why && strategy.exec) why = why_driver_not_again(document);
    if (why) {
        return make_error(ErrorCode::config,
                          fmt::format("audit impossible: {}: {}; its verdict is in {}",
                                      strategy.name, *why, kRunFile));
    }
    std::unique_ptr<ManagedServer> redis;
    if (audit.settings.managed_redis && redis_url.empty() && on_redis(audit.settings)) {
        HOTCOUNT_TRY_ASSIGN(redis, start_on_dump(folder, audit.settings));
        audit.settings.redis_url = redis->url();
    }
    // The reopened target uses the same TTLs as the run, which was kept.
    audit.settings.keep = true;
    HOTCOUNT_TRY_ASSIGN(const std::unique_ptr<Target> target,
                        reopen_target(audit.settings, folder));
    audit.contract = target->contract();
    HOTCOUNT_TRY_ASSIGN(audit.result, audit_all(*target, *ledger));
    if (!audit.result.passed()) {
        audit.conclusion = Conclusion::broken;
        audit.reasons.push_back(audit.result.findings());
    } else if (nothing_to_audit(audit.settings, audit.result)) {
        audit.conclusion = Conclusion::inconclusive;
        audit.reasons.emplace_back(kNothingToAudit);
    }
    return audit;
}

FolderAudit not_audited(const fs::path& folder, const Error& why) {
    FolderAudit audit;
    audit.folder = folder;
    audit.audited = false;
    audit.conclusion = Conclusion::inconclusive;
    audit.reasons.push_back(why.message);
    if (const auto document = read_json(folder / kRunFile)) {
        if (auto settings = trial_settings_of(*document)) audit.settings = std::move(*settings);
        audit.state = document->value("state", "");
    }
    return audit;
}

std::vector<fs::path> run_folders(const fs::path& folder) {
    std::vector<fs::path> folders;
    std::error_code failed;
    if (fs::exists(folder / kRunFile, failed)) return {folder};
    for (const fs::directory_entry& entry : fs::directory_iterator(folder, failed)) {
        if (fs::exists(entry.path() / kRunFile, failed)) folders.push_back(entry.path());
    }
    std::sort(folders.begin(), folders.end());
    return folders;
}

}  // namespace hotcount::loadtest
