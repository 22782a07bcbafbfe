#include "columns.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <string_view>
#include <utility>

namespace hotcount::loadtest {
namespace {

using nlohmann::json;

// -- how values are computed ----------------------------------------------------------------------

const Histogram& response_or_service(const TrialResult& trial) {
    return is_open(trial.settings) ? trial.load.response_ns : trial.load.service_ns;
}

/// All 0 where there is nothing to compare with.
auto spread(Spread Summary::*member) {
    return [=](const Summary& summary) -> json {
        const Spread& spread = summary.*member;
        return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
    };
}

/// A percentile of each round: of the response in an open loop, else of the service. Null where a
/// round has too few calls for it.
auto range_of_rounds(double quantile, bool of_response) {
    return [=](const Summary& summary) -> json {
        std::vector<double> values;
        for (const TrialResult& trial : summary.trials) {
            const Histogram& times = response_or_service(trial);
            if (is_open(trial.settings) != of_response) return nullptr;
            if (!can_tell(times.count(), quantile)) return nullptr;
            values.push_back(in_us(times.value_at(quantile)));
        }
        if (values.empty()) return nullptr;
        const Spread spread = spread_of(values);
        return {{"median", spread.median}, {"min", spread.min}, {"max", spread.max}};
    };
}

/// A member of a trial's load, or of its tally.
template <class T>
auto load(T LoadResult::*member) {
    return [member](const TrialResult& trial) -> json { return trial.load.*member; };
}
template <class T>
auto tally(T Tally::*member) {
    return [member](const TrialResult& trial) -> json { return trial.load.tally.*member; };
}
template <class T>
auto tally(T (Tally::*method)() const) {
    return [method](const TrialResult& trial) -> json { return (trial.load.tally.*method)(); };
}
/// Of a member or a method of the tally.
template <class T>
auto per_second(T member) {
    return [member](const TrialResult& trial) -> json {
        return trial.load.per_second(std::invoke(member, trial.load.tally));
    };
}
template <class T>
auto open_only(T value) {
    return [value](const TrialResult& trial) -> json {
        return is_open(trial.settings) ? json(value(trial)) : json(nullptr);
    };
}
/// The sum of a trial's value over the rounds.
template <class Value>
double sum_of(const Summary& summary, const Value& value) {
    double sum = 0;
    for (const TrialResult& trial : summary.trials) sum += static_cast<double>(value(trial));
    return sum;
}
template <class Value>
auto total(Value value) {
    return [value](const Summary& summary) -> json {
        return static_cast<std::uint64_t>(sum_of(summary, [&](const TrialResult& trial) {
            return value(trial).template get<double>();
        }));
    };
}

std::uint64_t errors(const TrialResult& trial) {
    return trial.load.tally.failed + trial.load.tally.unknown;
}

json error_codes(const TrialResult& trial) {
    json codes = json::object();
    for (std::size_t code = 0; code < kErrorCodes; ++code) {
        const std::uint64_t count = trial.load.tally.errors[code];
        if (count > 0) codes[std::string{to_string(static_cast<ErrorCode>(code))}] = count;
    }
    return codes;
}

/// Of each kind of call and outcome, the times as they were.
json outcomes(const TrialResult& trial) {
    json all = json::object();
    for (const OutcomeTimes& times : trial.load.outcomes) {
        const Histogram& ns = times.ns;
        all[std::string{to_string(times.kind)}][std::string{to_string(times.outcome)}] = {
            {"count", ns.count()},
            {"min", in_us(ns.min())},
            {"mean", ns.mean() * 1e-3},
            {"p50", in_us(ns.value_at(0.5))},
            {"p90", in_us(ns.value_at(0.9))},
            {"p99", in_us(ns.value_at(0.99))},
            {"p999", in_us(ns.value_at(0.999))},
            {"max", in_us(ns.max())}};
    }
    return all;
}

json timer_floor(const TrialResult& trial) { return in_us(timer_floor_ns({&trial.machine, 1})); }

/// The generator's ceiling of a trial; null if it is not known.
json ceiling(const TrialResult& trial) {
    return trial.ceiling_per_s > 0 ? json(trial.ceiling_per_s) : json(nullptr);
}
json headroom(const TrialResult& trial) {
    return trial.headroom() > 0 ? json(trial.headroom()) : json(nullptr);
}
json least_headroom(const Summary& summary) {
    double least = 0;
    for (const TrialResult& trial : summary.trials) {
        if (least == 0 || trial.headroom() < least) least = trial.headroom();
    }
    return least > 0 ? json(least) : json(nullptr);
}

json least_offered(const Summary& summary) {
    double least = 1;
    for (const TrialResult& trial : summary.trials) {
        least = std::min(least, trial.load.offered.share);
    }
    return least;
}

json writes_per_transaction(const Summary& summary) {
    const double transactions =
        sum_of(summary, [](const TrialResult& trial) { return trial.stats.transactions; });
    return transactions > 0 ? static_cast<double>(summary.audit.acknowledged) / transactions : 0.0;
}

json cpu_us_per_operation(const Summary& summary) {
    const double answered =
        sum_of(summary, [](const TrialResult& trial) { return trial.load.tally.answered(); });
    const double cpu_s = sum_of(summary, [](const TrialResult& trial) { return trial.load.cpu_s; });
    return answered > 0 ? 1e6 * cpu_s / answered : 0.0;
}

/// In memory there are none.
json commands_per_operation(const Summary& summary) {
    const double sent =
        sum_of(summary, [](const TrialResult& trial) { return trial.stats.statements; });
    const double operations =
        sum_of(summary, [](const TrialResult& trial) { return trial.load.operations; });
    return operations > 0 ? sent / operations : 0.0;
}

/// For each acknowledged write. Null: not known.
double per_write(const TrialResult& trial, const std::optional<double>& amount) {
    const auto writes = static_cast<double>(trial.audit.acknowledged);
    return amount && trial.audited && writes > 0 ? *amount / writes : -1;
}
json or_null(double figure) { return figure < 0 ? json(nullptr) : json(figure); }

using Amount = std::optional<double> ServerWork::*;

auto server(Amount amount, double unit = 1) {
    return [=](const TrialResult& trial) {
        const double figure = per_write(trial, trial.server.*amount);
        return or_null(figure < 0 ? figure : figure * unit);
    };
}
/// Null if one of the rounds does not know it.
auto server_of_rounds(Amount amount, double unit = 1) {
    return [=](const Summary& summary) {
        double sum = 0;
        double writes = 0;
        for (const TrialResult& trial : summary.trials) {
            if (per_write(trial, trial.server.*amount) < 0) return json(nullptr);
            sum += *(trial.server.*amount);
            writes += static_cast<double>(trial.audit.acknowledged);
        }
        return or_null(writes > 0 ? unit * sum / writes : -1);
    };
}
/// The missing figures of the servers, with reasons; null: none is missing.
json server_unknown(const TrialResult& trial) {
    return trial.server.unknown.empty() ? json(nullptr) : json(trial.server.unknown);
}
json server_unknown_of_rounds(const Summary& summary) {
    std::vector<std::string> all;
    for (const TrialResult& trial : summary.trials) {
        for (const std::string& why : trial.server.unknown) {
            if (std::find(all.begin(), all.end(), why) == all.end()) all.push_back(why);
        }
    }
    return all.empty() ? json(nullptr) : json(all);
}
bool any_knows(const PartResult& result, Amount amount) {
    return std::any_of(result.summaries.begin(), result.summaries.end(), [&](const Summary& one) {
        return !one.trials.empty() && !server_of_rounds(amount)(one).is_null();
    });
}
bool has_log(const PartResult& result) { return any_knows(result, &ServerWork::log_bytes); }
bool has_commits(const PartResult& result) {
    // If only SQLite counts commits, they are in the column "per commit".
    return has_log(result) && any_knows(result, &ServerWork::commits);
}
bool has_server_cpu(const PartResult& result) { return any_knows(result, &ServerWork::cpu_s); }

bool writes_something(const PartResult& result) {
    return result.part.settings.traffic.mix.vote > 0;
}
bool writes_nothing(const PartResult& result) { return !writes_something(result); }
bool has_several(const PartResult& result) { return result.summaries.size() > 1; }
/// A ratio to what is no faster than the baseline would flatter.
bool has_best(const PartResult& result) { return result.best_is_faster(); }
bool has_rounds(const PartResult& result) { return has_several(result) && result.part.rounds > 1; }
bool has_bystander(const PartResult& result) { return result.part.settings.bystander; }
bool builds(const TrialSettings& settings) { return settings.rebuild_every > Duration{0}; }
bool has_builds(const PartResult& result) { return builds(result.part.settings); }
bool has_commands(const PartResult& result) {
    return result.part.settings.workload != WorkloadKind::votes;
}

const std::map<std::string_view, double> kPercentiles = {
    {"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};

/// A column for each percentile: members of the group `path`, such as "service_us", by their names.
void add_latency(std::vector<ReportColumn>& columns, const std::string& path,
                 Histogram LoadResult::*of, Histogram Summary::*of_rounds, unsigned tables) {
    const bool open = of == &LoadResult::response_ns || of == &LoadResult::send_lag_ns;
    const bool bystander = of == &LoadResult::bystander_ns;
    const auto add = [&](const char* name, const char* header, unsigned in, auto value) {
        ReportColumn column;
        column.trial = {path + "/" + name, [=](const TrialResult& trial) -> json {
                            if (open && !is_open(trial.settings)) return nullptr;
                            if (bystander && !trial.settings.bystander) return nullptr;
                            return value(trial.load.*of);
                        }};
        if (of_rounds != nullptr) {
            column.summary = {path + "/" + name, [=](const Summary& summary) -> json {
                                  const Histogram& times = summary.*of_rounds;
                                  if (bystander && times.count() == 0) return nullptr;
                                  return value(times);
                              }};
        }
        column.header = header;
        column.format = Format::time;
        column.tables = in;
        if (bystander) column.shown = has_bystander;
        const std::string_view percentile = name;
        const auto known = kPercentiles.find(percentile);
        if (known != kPercentiles.end()) {
            column.quantile = known->second;
            column.trial_times = of;
            column.summary_times = of_rounds;
        }
        column.begins_with_sleep =
            of == &LoadResult::response_ns && (percentile == "p99" || percentile == "p999");
        columns.push_back(std::move(column));
    };
    const auto add_percentile = [&](const char* name, const char* header, unsigned in) {
        add(name, header, in, [quantile = kPercentiles.at(name)](const Histogram& times) {
            return in_us(times.value_at(quantile));
        });
    };
    // The closed loop's tail says nothing about a loaded system.
    const unsigned tail = bystander ? 0 : tables & ~kCompareClosed;
    add("count", "", 0, [](const Histogram& times) { return times.count(); });
    add("min", "", 0, [](const Histogram& times) { return in_us(times.min()); });
    add("mean", "", 0, [](const Histogram& times) { return times.mean() * 1e-3; });
    add_percentile("p50", bystander ? "other's p50_{unit}" : "p50_{unit}", tables);
    add_percentile("p90", "", 0);
    add_percentile("p99", bystander ? "other's p99_{unit}" : "p99_{unit}", tables);
    const auto add_by_round = [&](const char* name, double quantile, unsigned in) {
        ReportColumn column;
        column.summary = {path + "/" + name, range_of_rounds(quantile, open)};
        column.header = "min .. max";
        column.format = Format::range;
        column.tables = in;
        column.shown = has_rounds;
        columns.push_back(std::move(column));
    };
    if (of_rounds != nullptr && !bystander) {
        add_by_round("p50_by_round", 0.5, 0);
        add_by_round("p99_by_round", 0.99, tables & kCompare);
    }
    add_percentile("p999", "p999_{unit}", tail);
    add("max", "max_{unit}", tail, [](const Histogram& times) { return in_us(times.max()); });
}

// -- the lists: add a column here -----------------------------------------------------------------

std::vector<ReportColumn> make_columns() {
    using R = LoadResult;
    // In the order of the tables.
    std::vector<ReportColumn> all;
    const auto add = [&](Source<TrialResult> trial, Source<Summary> summary = {},
                         const char* header = "", Format format = Format::whole,
                         unsigned tables = 0, bool (*shown)(const PartResult&) = nullptr,
                         bool (*shown_in_run)(const TrialSettings&) = nullptr) {
        all.push_back(
            {std::move(trial), std::move(summary), header, format, tables, shown, shown_in_run});
    };
    add({"writes_per_s", per_second(&Tally::writes_ok)},
        {"writes_per_s", spread(&Summary::writes_per_s)}, "{writes}/s", Format::whole,
        kRun | kCompareClosed, writes_something);
    add({"reads_per_s", per_second(&Tally::reads_ok)},
        {"reads_per_s", spread(&Summary::reads_per_s)}, "reads/s", Format::whole,
        kRun | kCompareClosed, writes_nothing);
    add({}, {"ratio_to_baseline", spread(&Summary::ratio)}, "x {baseline}", Format::ratio,
        kCompareClosed, has_several);
    add({}, {"ratio_to_best", spread(&Summary::ratio_to_best)}, "x {best}", Format::ratio,
        kCompareClosed, has_best);
    add({}, {"p99_ratio_to_baseline", spread(&Summary::p99_ratio)}, "p99 x {baseline}",
        Format::ratio, kCompareOpen, has_rounds);
    add({"offered/share", open_only([](const TrialResult& t) { return t.load.offered.share; })},
        {"offered_share", least_offered}, "offered", Format::percent, kCompareOpen);
    add({"operations/ok", tally(&Tally::ok)}, {}, "ok", Format::whole, kRun);
    add({"operations/failed", tally(&Tally::failed)}, {"failed", total(tally(&Tally::failed))},
        "failed", Format::whole, kRun);
    add({"operations/unknown", tally(&Tally::unknown)}, {"unknown", total(tally(&Tally::unknown))},
        "unknown", Format::whole, kRun);
    add_latency(all, "response_us", &R::response_ns, &Summary::response_ns,
                kRunOpen | kCompareOpen);
    add_latency(all, "service_us", &R::service_ns, &Summary::service_ns,
                kRunClosed | kCompareClosed);
    add_latency(all, "send_lag_us", &R::send_lag_ns, nullptr, 0);
    add_latency(all, "bystander_us", &R::bystander_ns, &Summary::bystander_ns, kRun | kCompare);
    add({"offered/censored", open_only(load(&R::censored))},
        {"censored", total(load(&R::censored))}, "unserved", Format::whole,
        kRunOpen | kCompareOpen);
    add({}, {"writes_per_transaction", writes_per_transaction}, "per commit", Format::decimal,
        kCompareClosed);
    add({}, {"commands_per_operation", commands_per_operation}, "commands", Format::decimal,
        kCompareClosed, has_commands);
    add({"server/log_bytes_per_write", server(&ServerWork::log_bytes)},
        {"server/log_bytes_per_write", server_of_rounds(&ServerWork::log_bytes)}, "log_B",
        Format::decimal, kRun | kCompare, has_log);
    add({"server/commits_per_write", server(&ServerWork::commits)},
        {"server/commits_per_write", server_of_rounds(&ServerWork::commits)}, "commits",
        Format::decimal, kRun | kCompare, has_commits);
    add({"server/cpu_ms_per_write", server(&ServerWork::cpu_s, 1e3)},
        {"server/cpu_ms_per_write", server_of_rounds(&ServerWork::cpu_s, 1e3)}, "server_ms",
        Format::decimal, kRun | kCompare, has_server_cpu);
    add({"server/unknown", server_unknown}, {"server/unknown", server_unknown_of_rounds});
    add({"builds/published", [](const TrialResult& t) -> json { return t.builds.published; }},
        {"builds", total([](const TrialResult& t) -> json { return t.builds.published; })},
        "builds", Format::whole, kRun | kCompare, has_builds, builds);
    add({"", errors}, {"", total([](const TrialResult& t) -> json { return errors(t); })}, "errors",
        Format::whole, kCompare);
    // In JSON alone.
    add({}, {"cpu_us_per_operation", cpu_us_per_operation});
    add({}, {"rounds", [](const Summary& summary) { return summary.trials.size(); }});
    add({"window_s", load(&R::window_s)});
    add({"operations/sent_in_whole_run", load(&R::operations)});
    add({"operations/answered", tally(&Tally::answered)});
    add({"operations/votes_ok", tally(&Tally::votes_ok)});
    add({"operations/unvotes_ok", tally(&Tally::unvotes_ok)});
    add({"operations/reads_ok", tally(&Tally::reads_ok)});
    add({"operations/refused", tally(&Tally::refused)});
    add({"operations/repeated_votes", load(&R::repeated)});
    add({"machine", [](const TrialResult& t) { return describe(t.machine); }});
    add({"timer_floor_us", timer_floor},
        {"timer_floor_us", [](const Summary& s) -> json { return in_us(s.floor_ns); }});
    add({"errors", error_codes});
    add({"outcomes_us", outcomes});
    add({"bound", [](const TrialResult& t) -> json { return to_string(t.load.bound); }});
    add({"generator/ceiling_per_s", ceiling});
    add({"generator/headroom", headroom}, {"generator/headroom", least_headroom});
    add({"ok_per_s", per_second(&Tally::ok)});
    add({"cpu_s", load(&R::cpu_s)});
    add({"transactions", [](const TrialResult& t) { return t.stats.transactions; }});
    add({"statements", [](const TrialResult& t) { return t.stats.statements; }});
    add({"busy_waits", [](const TrialResult& t) { return t.stats.busy_waits; }});
    add({"builds/failed", [](const TrialResult& t) { return t.builds.failed; }});
    add({"kills", [](const TrialResult& t) { return t.kills; }});
    add({"stalls", [](const TrialResult& t) { return t.stalls; }});
    add({"faults", [](const TrialResult& t) { return t.recoveries.size(); }});
    add({"recoveries", [](const TrialResult& t) {
             return t.recoveries.empty() ? json(nullptr) : describe(t.recoveries);
         }});
    add({"set_up_s", [](const TrialResult& t) { return t.set_up_s; }});
    add({"audit_s", [](const TrialResult& t) { return t.audit_s; }});
    add({"ended_by_max_operations", load(&R::ledger_full)});
    add({"interrupted", load(&R::interrupted)});
    add({"offered/scheduled", open_only(load(&R::scheduled))});
    add({"offered/sent_in_time",
         open_only([](const TrialResult& t) { return t.load.offered.sent; })});
    add({"offered/backlog_early",
         open_only([](const TrialResult& t) { return t.load.offered.backlog_early; })});
    add({"offered/backlog_late",
         open_only([](const TrialResult& t) { return t.load.offered.backlog_late; })});
    add({"offered/backlog_grew",
         open_only([](const TrialResult& t) { return t.load.offered.growing; })});
    add({"offered/carried",
         open_only([](const TrialResult& t) { return t.load.offered.carried(); })});
    return all;
}

}  // namespace

const std::vector<ReportColumn>& report_columns() {
    static const std::vector<ReportColumn> kReportColumns = make_columns();
    return kReportColumns;
}

// -- the findings of audits -------------------------------------------------------------------------

namespace {

template <class T>
auto audit(T AuditResult::*member) {
    return [member](const AuditResult& found) -> json { return found.*member; };
}
template <class T>
auto audit(T (AuditResult::*method)() const) {
    return [method](const AuditResult& found) -> json { return (found.*method)(); };
}

/// A histogram for people: pairs of 0, 1, 2, 5, 10, 20 ... units, and how many values lie up to there
/// and above the pair before.
json steps_of(const Histogram& values, std::int64_t unit) {
    json steps = json::array();
    std::size_t cell = 0;
    const auto until = [&](std::int64_t end) {
        std::uint64_t count = 0;
        for (; cell <= Histogram::cell_of(end); ++cell) count += values.count_in(cell);
        return count;
    };
    std::uint64_t left = values.count();
    std::int64_t end = 0;
    for (std::int64_t power = unit, digit = 1; left > 0;) {
        const std::uint64_t count = until(end);
        left -= count;
        steps.push_back({static_cast<double>(end) / static_cast<double>(unit), count});
        end = digit * power;
        digit = digit == 1 ? 2 : digit == 2 ? 5 : 1;
        if (digit == 1) power *= 10;
    }
    return steps;
}

/// Of the reads whose numbers were right once.
json of_reads(const Histogram& values, std::int64_t unit) {
    const auto at = [&](double quantile) {
        return static_cast<double>(values.value_at(quantile)) / static_cast<double>(unit);
    };
    return {{"p50", at(0.5)},
            {"p90", at(0.9)},
            {"p99", at(0.99)},
            {"p999", at(0.999)},
            {"max", static_cast<double>(values.max()) / static_cast<double>(unit)},
            {"up_to", steps_of(values, unit)}};
}

constexpr std::int64_t kMillisecond = 1'000'000;

json staleness_ms(const AuditResult& found) {
    return found.reads > 0 ? of_reads(found.staleness_ns, kMillisecond) : json(nullptr);
}
/// Null where none of the reads can be above it.
json stale_p99_ms(const AuditResult& found) {
    if (!can_tell(found.staleness_ns.count(), 0.99)) return nullptr;
    return in_us(found.staleness_ns.value_at(0.99)) * 1e-3;
}
json versions_behind(const AuditResult& found) {
    return found.reads > 0 ? of_reads(found.versions_behind, 1) : json(nullptr);
}

double per_million(std::uint64_t found, std::uint64_t writes) {
    return writes > 0 ? 1e6 * static_cast<double>(found) / static_cast<double>(writes) : 0.0;
}

// -- the list: add a column here ------------------------------------------------------------------

std::vector<AuditColumn> make_audit_columns() {
    using A = AuditResult;
    using W = WorkloadKind;
    constexpr Format n = Format::whole;
    constexpr unsigned kAll = kCompare | kRunAudit | kFolderAudit;
    const std::vector<W> counted = {W::votes, W::counters};
    std::vector<AuditColumn> all;
    const auto add = [&](const char* path, std::function<json(const A&)> value,
                         const char* header = "", Format format = Format::whole,
                         unsigned tables = 0, std::vector<W> workloads = {}, bool finding = true) {
        all.push_back(
            {path, std::move(value), header, format, tables, std::move(workloads), finding});
    };
    // Attempted writes, and the stored state.
    add("acknowledged", audit(&A::acknowledged), "writes acked", n, kRunAudit | kFolderAudit, {},
        false);
    add("unknown", audit(&A::unknown), "unanswered", n, kFolderAudit, {}, false);
    add("rows", audit(&A::rows), "rows", n, kRunAudit | kFolderAudit, {W::votes}, false);
    add("live_votes", audit(&A::live), "live", n, kRunAudit | kFolderAudit, {W::votes}, false);
    add("sum_of_counters", audit(&A::sum), "sum", n, kRunAudit, {W::counters}, false);
    add("failed", audit(&A::failed));
    add("unsent", audit(&A::unsent));
    add("items", audit(&A::items));
    add("queued", audit(&A::queued), "queued", n, kRunAudit | kCompare, {W::counters}, false);
    add("refused", audit(&A::refused), "refused", n, kAll, {W::limiter, W::zset});
    // Findings.
    add("drift", audit(&A::drift), "drift", n, kAll, {W::votes});
    add("over_admitted", audit(&A::over_admitted), "over-admitted", n, kAll, {W::limiter});
    add("rogue_sets", audit(&A::rogue_sets), "rogue sets", n, kAll, {W::zset});
    add("late_writes", audit(&A::late_writes), "late writes", n, kAll, {W::zset});
    add("wrong_scores", audit(&A::wrong_scores), "wrong scores", n, kAll, {W::zset});
    add("wrong_refusals", audit(&A::wrong_refusals), "wrong refusals", n, kAll,
        {W::limiter, W::zset});
    add("keys_without_ttl", audit(&A::keys_without_ttl), "no TTL", n, kAll,
        {W::limiter, W::counters});
    add("keys_without_ttl_per_million",
        [](const A& found) { return per_million(found.keys_without_ttl, found.acknowledged); },
        "no TTL per M", Format::decimal, kAll, {W::counters});
    add("rogue_sets_per_million",
        [](const A& found) { return per_million(found.rogue_sets, found.acknowledged); },
        "rogue per M", Format::decimal, kAll, {W::zset});
    add("lost", audit(&A::lost), "lost", n, kAll, {W::votes, W::counters, W::zset});
    add("double", audit(&A::doubled), "double", n, kAll, counted);
    add("ghost", audit(&A::ghost), "ghost", n, kAll, counted);
    add(
        "", [](const A& found) { return found.counts_agree() && found.wrong_answers == 0; },
        "counts right", Format::yes_no, kAll, counted);
    add("", stale_p99_ms, "stale p99_ms", Format::decimal, kAll, counted);
    add("told_wrong", audit(&A::told_wrong), "told wrong", n, kAll, counted);
    add("", audit(&A::word), "audit", Format::words, kAll);
    // In JSON alone.
    add("passed", audit(&A::passed));
    add("counts_equal_live_votes", audit(&A::counts_agree));
    add("lost_rows", audit(&A::lost_rows));
    add("lost_in_failover", audit(&A::lost_in_failover));
    add("double_rows", audit(&A::double_rows));
    add("vote_count_low", audit(&A::stored_low));
    add("vote_count_high", audit(&A::stored_high));
    add("count_low", audit(&A::counted_low));
    add("count_high", audit(&A::counted_high));
    add("wrong_answers", audit(&A::wrong_answers));
    add("stale_reads", audit(&A::stale_reads));
    add("wrong_reads", audit(&A::wrong_reads));
    add("backward_reads", audit(&A::backward_reads));
    add("wrong_casts", audit(&A::wrong_casts));
    add("casts_checked", audit(&A::casts));
    add("reads/checked", audit(&A::reads));
    add("reads/stale", audit(&A::reads_stale));
    add("reads/never_right", audit(&A::reads_never_right));
    add("reads/went_back", audit(&A::reads_went_back));
    add("reads/staleness_ms", staleness_ms);
    add("reads/versions_behind", versions_behind);
    add("declared", audit(&A::allowed_breaches));
    add("examples", audit(&A::examples));
    return all;
}

}  // namespace

const std::vector<AuditColumn>& audit_columns() {
    static const std::vector<AuditColumn> kAuditColumns = make_audit_columns();
    return kAuditColumns;
}

}  // namespace hotcount::loadtest
