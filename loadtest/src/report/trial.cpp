#include "trial.hpp"

#include <fmt/core.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include "load/callers.hpp"
#include "load/run_folder.hpp"
#include "machine.hpp"
#include "report.hpp"
#include "run_series.hpp"
#include "targets/beside_load.hpp"
#include "targets/redis_dump.hpp"
#include "targets/sql_place.hpp"

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

bool on_server(const TrialSettings& settings) {
    const auto strategy = find_strategy(settings.strategy);
    return strategy && (strategy->store == StoreKind::redis || is_views(*strategy) ||
                        (is_on_sql(*strategy) && on_database_server(settings.database_url)));
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

/// What fails once there is a measurement makes it inconclusive.
template <class T>
void note(TrialResult& trial, std::string_view what, const Result<T>& done) {
    if (!done) trial.problems.push_back(fmt::format("{}: {}", what, done.error().message));
}

/// Writes what is known by now.
void keep(TrialResult& trial, const nlohmann::json& provenance, const fs::path& folder) {
    conclude(trial);
    const std::size_t problems = trial.problems.size();
    note(trial, "the result could not be kept",
         write_json(folder / kRunFile, run_document(trial, provenance)));
    if (trial.problems.size() > problems) conclude(trial);
}

/// A server that died counts from 0, or says nothing.
TargetStats spent(const TargetStats& before, const TargetStats& after) {
    const auto more = [](std::uint64_t from, std::uint64_t to) {
        return to > from ? to - from : 0;
    };
    return {more(before.transactions, after.transactions),
            more(before.statements, after.statements), more(before.busy_waits, after.busy_waits)};
}

void replace_all(std::string& text, const std::string& what, std::string_view by) {
    for (auto at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
        text.replace(at, what.size(), by);
    }
}

/// The contract for people: the tables of a run on a server have long names that say nothing.
Contract without_prefix(Contract contract, const std::string& prefix) {
    const std::string item_count = table_name(prefix, "item.vote_count");
    const std::string tables = table_name(prefix, "");
    for (std::string* const text : {&contract.acknowledged, &contract.may_lose}) {
        replace_all(*text, item_count, "the item's vote_count");
        if (!tables.empty()) replace_all(*text, tables, "");
    }
    return contract;
}

Result<TrialResult> run_on_target(TrialResult trial, Target& target, const StopWatch& set_up,
                                  const fs::path& folder, const nlohmann::json& provenance,
                                  const TrialHooks& hooks) {
    const TrialSettings& settings = trial.settings;
    trial.contract = without_prefix(target.contract(), settings.key_prefix);
    trial.place = target.place();
    const LoadSettings load = load_settings(settings, target.unvote());
    HOTCOUNT_TRY(write_json(folder / kRunFile, run_document(trial, provenance)));
    HOTCOUNT_TRY(reserve_json(folder / kRunFile));
    HOTCOUNT_TRY_ASSIGN(
        const std::unique_ptr<Ledger> ledger,
        Ledger::create(folder / kLedgerFile, ledger_capacity(load, settings.max_operations),
                       settings.traffic.seed));
    trial.machine.on_server = on_server(settings);
    trial.machine.before = measure_machine(folder);
    HOTCOUNT_TRY(target.begin());
    HOTCOUNT_TRY(write_evidence(target, folder));
    ManagedServer* const redis = on_redis(settings) ? hooks.redis : nullptr;
    if (redis && settings.keep) HOTCOUNT_TRY(mark_run(*redis, settings));
    ManagedServer* const database = find_server(hooks.databases, settings.database_url);
    trial.set_up_s = set_up.seconds();

    const std::unique_ptr<Driver> wrapped = hooks.wrap ? hooks.wrap(target.driver()) : nullptr;
    Driver* driver = wrapped ? wrapped.get() : &target.driver();
    std::optional<SlowedDriver> slowed;
    if (settings.slower > 0) driver = &slowed.emplace(*driver, settings.slower);
    HOTCOUNT_TRY_ASSIGN(Callers callers, Callers::start(settings, *driver));
    if (hooks.on_load) hooks.on_load();
    const TargetStats before = target.stats();
    const ServerMeter meter(settings, redis, database);
    std::unique_ptr<Bystander> bystander;
    if (settings.bystander && on_redis(settings)) {
        HOTCOUNT_TRY_ASSIGN(bystander, Bystander::start(settings));
    }
    std::unique_ptr<Rebuilder> rebuilder;
    if (settings.rebuild_every > Duration{0}) {
        HOTCOUNT_TRY_ASSIGN(rebuilder, Rebuilder::start(settings));
    }
    std::optional<ServerFaults> faults;
    if (!settings.faults.empty()) {
        faults.emplace(settings, redis, database, std::chrono::steady_clock::now());
    }
    trial.load = run_load(load, callers.driver(), *ledger, hooks.interrupt, hooks.observe);
    if (hooks.ceiling) trial.ceiling_per_s = hooks.ceiling->per_s(settings.arrival);
    if (trial.near_ceiling()) trial.load.bound = LoadBound::generator;
    // From here on there is a measurement, which nothing may throw away.
    if (faults) {
        auto done = faults->stop();
        note(trial, "what --fault asked for was not done", done);
        if (done) trial.recoveries = recoveries(*ledger, *done, settings);
    }
    if (rebuilder) trial.builds = rebuilder->stop();
    const Processes::Faults disturbed = callers.stop();
    trial.kills = disturbed.kills;
    trial.stalls = disturbed.stalls;
    if (bystander) trial.load.bystander_ns = bystander->stop();
    trial.machine.after = measure_machine(folder);
    // Also makes room on a full disk.
    note(trial, "the ledger keeps its length", ledger->finish());
    trial.state = RunState::measured;
    trial.problems.emplace_back("not audited: the audit has not come to an end");
    keep(trial, provenance, folder);
    trial.problems.pop_back();
    // Without it the verdict may find no room; what is kept by now stays.
    (void)reserve_json(folder / kRunFile);
    if (settings.keep || settings.keep_series) {
        note(trial, "how it went could not be kept", write_series(*ledger, settings, folder));
    }

    // A server that does not answer any more may take its time to say so.
    trial.stats = spent(before, target.stats());
    const StopWatch audit;
    const auto settled = target.settle();
    trial.server = meter.work(spent(before, target.stats()));
    auto audited = settled ? audit_all(target, *ledger) : settled.error();
    trial.audit_s = audit.seconds();
    note(trial, "audit impossible", audited);
    if (audited) {
        trial.audit = std::move(*audited);
        trial.audited = true;
        trial.state = RunState::finished;
    }
    note(trial, "a later audit is impossible", write_evidence(target, folder));
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
    // First of all: what the folder is, whatever becomes of this program.
    HOTCOUNT_TRY(write_json(folder / kRunFile, run_document(fresh, provenance)));
    // Where there was nothing to measure, the folder can be named again.
    const auto leave_no_trace = [&] {
        std::error_code ignored;
        if (!fs::exists(folder / kLedgerFile, ignored)) fs::remove(folder / kRunFile, ignored);
    };
    const StopWatch set_up;
    auto target = make_target(fresh.settings, folder);
    if (!target) {
        leave_no_trace();
        return target.error();
    }
    auto trial = run_on_target(std::move(fresh), **target, set_up, folder, provenance, hooks);
    if (!trial) {
        (void)(*target)->clean_up();  // No key is left on somebody's server.
        leave_no_trace();
        return trial;
    }
    if (hooks.redis && settings.keep && strategy.store == StoreKind::redis) {
        note(*trial, "what the private Redis held could not be kept",
             save_dump(*hooks.redis, folder));
    }
    const auto cleaned = (*target)->clean_up();
    // Of a server that is gone, the audit has said so.
    if (trial->audited) note(*trial, "what the run left could not be removed", cleaned);
    keep(*trial, provenance, folder);
    return trial;
}

}  // namespace hotcount::loadtest
