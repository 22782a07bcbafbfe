#include "trial.hpp"

#include <fmt/core.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <utility>

#include "checkers/audit.hpp"
#include "load/batches.hpp"
#include "load/processes.hpp"
#include "load/run_folder.hpp"
#include "machine.hpp"
#include "report_json.hpp"
#include "targets/bystander.hpp"
#include "targets/redis_dump.hpp"
#include "targets/server_faults.hpp"

namespace hotcount::loadtest {
namespace {

namespace fs = std::filesystem;

class StopWatch {
  public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }

  private:
    std::chrono::steady_clock::time_point start_{std::chrono::steady_clock::now()};
};

LoadSettings load_settings(const TrialSettings& settings, UnvoteValue unvote) {
    LoadSettings load;
    load.arrival = settings.arrival;
    load.rate_per_s = settings.rate_per_s;
    load.workers = settings.workers;
    if (const auto strategy = find_strategy(settings.strategy); strategy && strategy->async) {
        load.in_flight = settings.in_flight;
    }
    if (settings.batch > 0) load.in_flight = settings.workers * settings.batch;
    load.warmup = settings.warmup;
    load.duration = settings.duration;
    load.traffic = settings.traffic;
    load.unvote = unvote;
    return load;
}

bool on_redis(const TrialSettings& settings) {
    const auto strategy = find_strategy(settings.strategy);
    return strategy && strategy->store == StoreKind::redis;
}

std::string broken_reason(const AuditResult& audit) {
    std::string reason = fmt::format("the audit found {} lost, {} double, {} ghost", audit.lost(),
                                     audit.doubled(), audit.ghost());
    const auto add = [&](std::uint64_t count, const char* what) {
        if (count > 0) reason += fmt::format(", {} {}", count, what);
    };
    add(audit.drift, "off in counts that may drift");
    add(audit.wrong_answers, "wrong answers");
    add(audit.over_admitted, "over-admitted");
    add(audit.wrong_refusals, "refused wrongly");
    add(audit.keys_without_ttl, "keys without a TTL");
    add(audit.rogue_sets, "rogue sets");
    add(audit.late_writes, "late writes");
    add(audit.wrong_scores, "wrong scores");
    add(audit.allowed_breaches, "of these allowed by the contract");
    return reason;
}

/// No other run has this, on this machine or on another that uses the server: it would need the
/// same process id in the same nanosecond.
std::string fresh_key_prefix() {
    static std::atomic<std::uint32_t> runs{0};
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return fmt::format("hotcount-load:{:x}-{:x}-{}:",
                       std::chrono::duration_cast<std::chrono::nanoseconds>(now).count(), getpid(),
                       ++runs);
}

Result<void> write_evidence(const Target& target, const fs::path& folder) {
    const nlohmann::json evidence = target.evidence();
    return evidence.is_null() ? Result<void>{} : write_json(folder / kTargetFile, evidence);
}

void conclude(TrialResult& trial) {
    const LoadResult& load = trial.load;
    std::vector<std::string>& reasons = trial.reasons;
    if (load.error) reasons.push_back("the load stopped: " + load.error->message);
    if (load.interrupted) reasons.emplace_back("it was interrupted");
    const bool overloaded = trial.settings.arrival != Arrival::closed && !load.offered.carried();
    // A strategy that is so late that it still serves the warm-up is overloaded, no more than that.
    if (load.tally.ok() == 0 && (!overloaded || load.tally.answered() > 0)) {
        reasons.emplace_back("nothing was acknowledged in the window");
    }
    if (overloaded) {
        reasons.push_back(
            fmt::format("overloaded: {:.1f} % of the schedule was offered, the "
                        "backlog {}",
                        100 * load.offered.share, load.offered.growing ? "grew" : "stayed flat"));
    }
    if (!reasons.empty()) trial.conclusion = Conclusion::inconclusive;
    if (!trial.audit.passed()) {
        trial.conclusion = Conclusion::broken;
        reasons.insert(reasons.begin(), broken_reason(trial.audit));
    }
}

}  // namespace

std::string_view to_string(Conclusion conclusion) {
    switch (conclusion) {
        case Conclusion::passed:
            return "passed";
        case Conclusion::broken:
            return "broken";
        case Conclusion::inconclusive:
            return "inconclusive";
    }
    return "?";
}

bool TrialResult::overloaded() const {
    return conclusion == Conclusion::inconclusive && reasons.size() == 1 &&
           reasons[0].starts_with("overloaded");
}

namespace {

Result<TrialResult> run_on_target(TrialResult trial, Target& target, const StopWatch& set_up,
                                  const fs::path& folder, const nlohmann::json& provenance,
                                  const TrialHooks& hooks) {
    const TrialSettings& settings = trial.settings;
    trial.contract = target.contract();
    trial.place = target.place();
    const LoadSettings load = load_settings(settings, target.unvote());
    HOTCOUNT_TRY_ASSIGN(
        const std::unique_ptr<Ledger> ledger,
        Ledger::create(folder / kLedgerFile, ledger_capacity(load, settings.max_operations),
                       settings.traffic.seed));
    HOTCOUNT_TRY(write_json(folder / kRunFile, run_document(trial, provenance, false)));
    HOTCOUNT_TRY(target.begin());
    HOTCOUNT_TRY(write_evidence(target, folder));
    ManagedServer* const redis = on_redis(settings) ? hooks.redis : nullptr;
    if (redis && settings.keep) HOTCOUNT_TRY(mark_run(*redis, settings));
    trial.set_up_s = set_up.seconds();

    const std::unique_ptr<Driver> wrapped = hooks.wrap ? hooks.wrap(target.driver()) : nullptr;
    Driver* driver = wrapped ? wrapped.get() : &target.driver();
    std::unique_ptr<Processes> processes;
    if (settings.processes > 0) {
        HOTCOUNT_TRY_ASSIGN(processes,
                            Processes::start(*driver, {settings.processes, settings.workers,
                                                       settings.kill_every, settings.stall}));
        driver = processes.get();
    }
    std::unique_ptr<Batches> batches;
    if (settings.batch > 0) {
        batches = std::make_unique<Batches>(*driver, settings.batch, settings.workers);
        driver = batches.get();
    }
    if (hooks.on_load) hooks.on_load();
    const TargetStats before = target.stats();
    std::unique_ptr<Bystander> bystander;
    if (settings.bystander && on_redis(settings)) {
        HOTCOUNT_TRY_ASSIGN(bystander, Bystander::start(settings));
    }
    std::optional<ServerFaults> faults;
    if (redis && !settings.faults.empty()) faults.emplace(settings, *redis);
    std::unique_ptr<Rebuilder> rebuilder;
    if (settings.rebuild_every > Duration{0}) {
        HOTCOUNT_TRY_ASSIGN(rebuilder, Rebuilder::start(settings));
    }
    trial.load = run_load(load, *driver, *ledger, hooks.interrupt, hooks.observe);
    if (faults) {
        HOTCOUNT_TRY_ASSIGN(trial.faults, faults->stop());
    }
    if (rebuilder) trial.builds = rebuilder->stop();
    batches.reset();
    if (processes) {
        const Processes::Faults disturbed = processes->faults();
        trial.kills = disturbed.kills;
        trial.stalls = disturbed.stalls;
        processes.reset();
    }
    if (bystander) trial.load.bystander_ns = bystander->stop();
    const TargetStats after = target.stats();
    trial.stats = {after.transactions - before.transactions, after.statements - before.statements,
                   after.busy_waits - before.busy_waits};

    const StopWatch audit;
    HOTCOUNT_TRY_ASSIGN(trial.audit, target.audit(*ledger));
    HOTCOUNT_TRY(write_evidence(target, folder));
    trial.audit_s = audit.seconds();
    conclude(trial);
    HOTCOUNT_TRY(ledger->finish());
    HOTCOUNT_TRY(write_json(folder / kRunFile, run_document(trial, provenance, true)));
    return trial;
}

}  // namespace

Result<TrialResult> run_trial(const TrialSettings& settings, const fs::path& folder,
                              const nlohmann::json& provenance, const TrialHooks& hooks) {
    TrialResult fresh;
    fresh.settings = settings;
    fresh.started = utc_now();
    HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(settings.strategy));
    const bool on_server =
        strategy.store != StoreKind::sql || on_database_server(settings.database_url);
    if (on_server && settings.key_prefix.empty()) {
        fresh.settings.key_prefix = fresh_key_prefix();
    }
    const StopWatch set_up;
    HOTCOUNT_TRY_ASSIGN(const std::unique_ptr<Target> target, make_target(fresh.settings, folder));
    auto trial = run_on_target(std::move(fresh), *target, set_up, folder, provenance, hooks);
    Result<void> saved;
    if (hooks.redis && settings.keep && strategy.store == StoreKind::redis) {
        saved = save_dump(*hooks.redis, folder);
    }
    // Also after a failure: no key is left on somebody's server.
    const auto cleaned = target->clean_up();
    HOTCOUNT_TRY(trial);
    HOTCOUNT_TRY(saved);
    HOTCOUNT_TRY(cleaned);
    return trial;
}

namespace {

/// Its data went with it. What is on SQLite or on a server of the user's is still there.
Result<void> refuse_ended_database(const TrialSettings& settings, const std::string& database_url) {
    HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(settings.strategy));
    const bool on_sql = strategy.workload == WorkloadKind::votes || is_views(strategy) ||
                        strategy.store == StoreKind::sql;
    if (!settings.managed_database || !database_url.empty() || !on_sql) return {};
    return make_error(ErrorCode::config,
                      fmt::format("audit impossible: the private database of this run of {} ended "
                                  "with it; its verdict is in run.json",
                                  strategy.name));
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
    HOTCOUNT_TRY_ASSIGN(const std::unique_ptr<Ledger> ledger, Ledger::open(folder / kLedgerFile));
    if (nothing_was_sent(*ledger)) {
        audit.audited = false;
        audit.conclusion = Conclusion::inconclusive;
        audit.reasons.emplace_back(
            "the run ended before its first write: there is nothing to audit");
        return audit;
    }
    HOTCOUNT_TRY(refuse_ended_database(audit.settings, database_url));
    std::unique_ptr<ManagedServer> redis;
    if (audit.settings.managed_redis && redis_url.empty() && on_redis(audit.settings)) {
        HOTCOUNT_TRY_ASSIGN(redis, start_on_dump(folder, audit.settings));
        audit.settings.redis_url = redis->url();
    }
    // Its keys live as long as those of the run did.
    audit.settings.keep = true;
    HOTCOUNT_TRY_ASSIGN(const std::unique_ptr<Target> target,
                        reopen_target(audit.settings, folder));
    audit.contract = target->contract();
    HOTCOUNT_TRY_ASSIGN(audit.result, target->audit(*ledger));
    if (!audit.result.passed()) {
        audit.conclusion = Conclusion::broken;
        audit.reasons.push_back(broken_reason(audit.result));
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
