#include "trial.hpp"

#include <fmt/core.h>

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <functional>
#include <hotcount/url.hpp>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

#include "checkers/audit.hpp"
#include "compare.hpp"
#include "load/callers.hpp"
#include "load/run_folder.hpp"
#include "machine.hpp"
#include "report.hpp"
#include "targets/beside_load.hpp"
#include "targets/managed_server.hpp"
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
    return strategy && (strategy->store == StrategyStore::redis || strategy->views ||
                        (strategy->on_sql() && on_database_server(settings.database_url)));
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

/// Notes a failure after the measurement, which makes the trial inconclusive.
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

/// A group of them is not kept for a later audit.
const ManagedServer* kept_redis(const Managed* redis) {
    return dynamic_cast<const ManagedServer*>(redis);
}

/// The server with this URL; null: there is none.
Managed* find_server(const std::vector<Managed*>& servers, const std::string& url) {
    const auto found = std::find_if(servers.begin(), servers.end(),
                                    [&](const Managed* one) { return one->url() == url; });
    return found == servers.end() ? nullptr : *found;
}

/// One trial on a target that is set up: the load, what it left, and what that is worth.
class TrialRun {
  public:
    TrialRun(TrialResult& trial, Target& target, const fs::path& folder,
             const nlohmann::json& provenance, const TrialHooks& hooks)
        : trial_(trial),
          target_(target),
          folder_(folder),
          provenance_(provenance),
          hooks_(hooks),
          load_(load_settings(trial.settings, target.unvote())),
          redis_(on_redis(trial.settings) ? hooks.redis : nullptr),
          database_(find_server(hooks.databases, trial.settings.database_url)) {}

    /// An error only if nothing was measured.
    Result<void> go(const StopWatch& set_up) {
        HOTCOUNT_TRY(prepare());
        trial_.set_up_s = set_up.seconds();
        HOTCOUNT_TRY(measure());
        // A server that does not answer any more may take its time to say so.
        trial_.stats = spent(before_, target_.stats());
        audit();
        return {};
    }

  private:
    const TrialSettings& settings() const { return trial_.settings; }

    /// The folder says what is run, and the store is as the load shall find it.
    Result<void> prepare() {
        trial_.contract = readable(target_.contract(), settings().key_prefix);
        trial_.place = target_.place();
        HOTCOUNT_TRY(write_json(folder_ / kRunFile, run_document(trial_, provenance_)));
        HOTCOUNT_TRY(reserve_json(folder_ / kRunFile));
        HOTCOUNT_TRY_ASSIGN(
            ledger_,
            Ledger::create(folder_ / kLedgerFile, ledger_capacity(load_, settings().max_operations),
                           settings().traffic.seed));
        trial_.machine.on_server = on_server(settings());
        trial_.machine.before = measure_machine(folder_);
        HOTCOUNT_TRY(target_.begin());
        HOTCOUNT_TRY(write_evidence(target_, folder_));
        const auto* const kept = kept_redis(redis_);
        if (kept && settings().keep) HOTCOUNT_TRY(mark_run(*kept, settings()));
        return {};
    }

    /// The load, and what it showed by itself.
    Result<void> measure() {
        const auto wrapped = hooks_.wrap ? hooks_.wrap(target_.driver()) : nullptr;
        Driver* driver = wrapped ? wrapped.get() : &target_.driver();
        std::optional<SlowedDriver> slowed;
        if (settings().slower > 0) driver = &slowed.emplace(*driver, settings().slower);
        HOTCOUNT_TRY_ASSIGN(Callers callers, Callers::start(settings(), *driver));
        if (hooks_.on_load) hooks_.on_load();
        before_ = target_.stats();
        meter_.emplace(settings(), redis_, database_);
        HOTCOUNT_TRY_ASSIGN(BesideLoad beside, BesideLoad::start(settings(), redis_, database_));
        trial_.load = run_load(load_, callers.driver(), *ledger_, hooks_.interrupt, hooks_.observe);
        if (hooks_.ceiling) trial_.ceiling_per_s = hooks_.ceiling->per_s(settings().arrival);
        if (trial_.near_ceiling()) trial_.load.bound = LoadBound::generator;
        // From here on there is a measurement, which nothing may throw away.
        BesideLoad::Found found = beside.stop();
        note(trial_, "what --fault asked for was not done", found.faults.done);
        if (const auto& outages = found.faults.outages; !outages.empty()) {
            trial_.recoveries = recoveries(*ledger_, outages, settings());
        }
        trial_.builds = found.builds;
        const Processes::Faults disturbed = callers.stop();
        trial_.kills = disturbed.kills;
        trial_.stalls = disturbed.stalls;
        trial_.load.bystander_ns = std::move(found.bystander_ns);
        trial_.machine.after = measure_machine(folder_);
        keep_measurement();
        return {};
    }

    void keep_measurement() {
        // Also makes room on a full disk.
        note(trial_, "the ledger keeps its length", ledger_->finish());
        trial_.state = RunState::measured;
        trial_.problems.emplace_back("not audited: the audit has not come to an end");
        keep(trial_, provenance_, folder_);
        trial_.problems.pop_back();
        // Without it the verdict may find no room; what is kept by now stays.
        (void)reserve_json(folder_ / kRunFile);
        if (settings().keep || settings().keep_series) {
            note(trial_, "how it went could not be kept",
                 write_series(*ledger_, settings(), folder_));
        }
    }

    void audit() {
        const StopWatch watch;
        const auto settled = target_.settle();
        trial_.server = meter_->work(spent(before_, target_.stats()));
        auto audited = settled ? audit_all(target_, *ledger_) : settled.error();
        trial_.audit_s = watch.seconds();
        note(trial_, "audit impossible", audited);
        if (audited) {
            trial_.audit = std::move(*audited);
            if (!trial_.recoveries.empty()) {
                trial_.audit.allow_failover(may_lose(trial_.recoveries));
            }
            trial_.audited = true;
            trial_.state = RunState::finished;
        }
        note(trial_, "a later audit is impossible", write_evidence(target_, folder_));
    }

    TrialResult& trial_;
    Target& target_;
    const fs::path& folder_;
    const nlohmann::json& provenance_;
    const TrialHooks& hooks_;
    const LoadSettings load_;
    Managed* const redis_;
    Managed* const database_;
    std::unique_ptr<Ledger> ledger_{};
    TargetStats before_{};
    std::optional<ServerMeter> meter_{};
};

}  // namespace

bool on_redis(const TrialSettings& settings) {
    const auto strategy = find_strategy(settings.strategy);
    return strategy && strategy->store == StrategyStore::redis;
}

Result<AuditResult> audit_all(Target& target, const Ledger& ledger) {
    HOTCOUNT_TRY_ASSIGN(AuditResult result, target.audit(ledger));
    if (const auto rules = target.answer_rules(ledger)) audit_answers(ledger, *rules, result);
    return result;
}

Result<TrialResult> run_trial(const TrialSettings& settings, const fs::path& folder,
                              const nlohmann::json& provenance, const TrialHooks& hooks) {
    TrialResult fresh;
    fresh.settings = settings;
    fresh.started = utc_now();
    HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(settings.strategy));
    const bool on_server =
        strategy.store != StrategyStore::sql || on_database_server(settings.database_url);
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
    const auto done = TrialRun(fresh, **target, folder, provenance, hooks).go(set_up);
    if (!done) {
        (void)(*target)->clean_up();  // Leaves no key on a server of the user's.
        leave_no_trace();
        return done.error();
    }
    const auto* const kept = kept_redis(hooks.redis);
    if (kept && settings.keep && strategy.store == StrategyStore::redis) {
        note(fresh, "what the private Redis held could not be kept", save_dump(*kept, folder));
    }
    const auto cleaned = (*target)->clean_up();
    // The audit has already reported a server that is gone.
    if (fresh.audited) note(fresh, "what the run left could not be removed", cleaned);
    keep(fresh, provenance, folder);
    return fresh;
}

// -- trials one after another ----------------------------------------------------------------------

namespace {

namespace fs = std::filesystem;

constexpr std::size_t kLongestName = 100;

/// votes.db and closed-01-naive give votes-closed-01-naive.db.
Result<fs::path> database_beside(const std::string& url, const std::string& name) {
    HOTCOUNT_TRY_ASSIGN(const Url parsed, parse_url(url));
    const fs::path path = parsed.path.substr(1);
    return path.parent_path() /
           fmt::format("{}-{}{}", path.stem().string(), name, path.extension().string());
}

/// The name as a folder may be called, which is in no other trial's. A user's own command may have
/// anything in it.
std::string folder_name(const fs::path& parent, std::string name) {
    const auto keeps = [](unsigned char c) {
        return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '=';
    };
    std::replace_if(name.begin(), name.end(), std::not_fn(keeps), '-');
    if (name.size() > kLongestName) name.resize(kLongestName);
    std::error_code ignored;
    std::string taken = name;
    for (int other = 2; fs::exists(parent / taken, ignored); ++other) {
        taken = fmt::format("{}-{}", name, other);
    }
    return taken;
}

void remove_database(const fs::path& path) {
    std::error_code ignored;
    for (const char* suffix : {"", "-wal", "-shm"}) {
        fs::path file = path;
        file += suffix;
        fs::remove(file, ignored);
    }
}

}  // namespace

TrialHooks TrialContext::hooks() const {
    return {interrupt,
            [this] { progress.load(); },
            [this](const LoadSample& sample) { progress.sample(sample); },
            {},
            redis,
            ceiling,
            databases};
}

Result<TrialResult> FreshTrials::run(TrialSettings settings, std::string name,
                                     const std::string& label, bool keep) {
    name = folder_name(context_.folder, std::move(name));
    fs::path database;
    HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(settings.strategy));
    if (!settings.database_url.empty() && settings.tables.empty() && strategy.on_sql() &&
        !on_database_server(settings.database_url)) {
        HOTCOUNT_TRY_ASSIGN(database, database_beside(settings.database_url, name));
        settings.database_url = sqlite_url(database);
    }
    context_.progress.set_up(
        label, std::chrono::duration<double>(settings.warmup + settings.duration).count());
    const fs::path folder = context_.folder / name;
    std::error_code failed;
    fs::create_directory(folder, failed);
    if (failed) {
        return make_error(ErrorCode::config,
                          fmt::format("cannot make {}: {}", folder.string(), failed.message()));
    }
    HOTCOUNT_TRY_ASSIGN(TrialResult trial,
                        run_trial(settings, folder, context_.provenance, context_.hooks()));
    context_.progress.end(trial);
    if (!context_.keep || !keep) {
        const bool series = keep && settings.keep_series;
        for (const auto& each : fs::directory_iterator(folder, failed)) {
            if (series && each.path().filename() == kResponseFile) continue;
            fs::remove_all(each.path(), failed);
        }
        if (!series) fs::remove(folder, failed);
        if (!database.empty()) remove_database(database);
    }
    return trial;
}

}  // namespace hotcount::loadtest
