#include "report_text.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "machine.hpp"
#include "table.hpp"

namespace hotcount::loadtest {
namespace {

bool is_open(const TrialSettings& settings) { return settings.arrival != Arrival::closed; }

/// Milliseconds for what goes to a disk, microseconds for what stays in memory.
struct TimeUnit {
    const char* name;
    double per_ns;

    std::string header(const char* what) const { return fmt::format("{}_{}", what, name); }
    std::string of(std::int64_t ns) const { return three_digits(static_cast<double>(ns) * per_ns); }
};

TimeUnit time_unit(const TrialSettings& settings) {
    return settings.workload == WorkloadKind::votes ? TimeUnit{"ms", 1e-6} : TimeUnit{"us", 1e-3};
}

std::string whole(std::uint64_t count) { return grouped(static_cast<double>(count)); }

std::string range(const Spread& spread, std::string (*format)(double)) {
    return fmt::format("{} .. {}", format(spread.min), format(spread.max));
}

std::string two_decimals(double value) {
    return value < 10 ? fmt::format("{:.2f}", value) : fmt::format("{:.1f}", value);
}

/// What is written.
std::string_view writes(const TrialSettings& settings) {
    switch (settings.workload) {
        case WorkloadKind::votes:
            return "votes";
        case WorkloadKind::counters:
            return "adds";
        case WorkloadKind::limiter:
            return "hits";
        case WorkloadKind::zset:
            return "upserts";
    }
    return "writes";
}

std::string_view audit_word(const AuditResult& audit) {
    if (!audit.passed()) return "FAILED";
    return audit.allowed_breaches > 0 ? "allowed" : "passed";
}

std::vector<std::string> audit_header(WorkloadKind workload) {
    switch (workload) {
        case WorkloadKind::limiter:
            return {"refused", "over-admitted", "wrong refusals", "no TTL", "audit"};
        case WorkloadKind::zset:
            return {"refused",        "rogue sets", "late writes", "wrong scores",
                    "wrong refusals", "lost",       "audit"};
        case WorkloadKind::votes:
        case WorkloadKind::counters:
            break;
    }
    return {"lost", "double", "ghost", "counts right", "audit"};
}

std::vector<std::string> audit_cells(WorkloadKind workload, const AuditResult& audit) {
    std::string word{audit_word(audit)};
    switch (workload) {
        case WorkloadKind::limiter:
            return {whole(audit.refused), whole(audit.over_admitted), whole(audit.wrong_refusals),
                    whole(audit.keys_without_ttl), word};
        case WorkloadKind::zset:
            return {whole(audit.refused),
                    whole(audit.rogue_sets),
                    whole(audit.late_writes),
                    whole(audit.wrong_scores),
                    whole(audit.wrong_refusals),
                    whole(audit.lost()),
                    word};
        case WorkloadKind::votes:
        case WorkloadKind::counters:
            break;
    }
    const bool right = audit.counts_agree() && audit.wrong_answers == 0;
    return {whole(audit.lost()), whole(audit.doubled()), whole(audit.ghost()), right ? "yes" : "NO",
            word};
}

std::vector<std::string> joined(std::vector<std::string> cells, std::vector<std::string> more) {
    cells.insert(cells.end(), more.begin(), more.end());
    return cells;
}

std::string traffic_line(const TrialSettings& settings) {
    const TrafficSettings& traffic = settings.traffic;
    std::string line = fmt::format("{} items, Zipf {:g}, {} users, vote={:g},unvote={:g},read={:g}",
                                   whole(traffic.items), traffic.zipf, whole(traffic.users),
                                   traffic.mix.vote, traffic.mix.unvote, traffic.mix.read);
    if (settings.workload == WorkloadKind::limiter) {
        line += fmt::format(", each item limited to {}", settings.limit.str());
    } else if (settings.workload == WorkloadKind::zset) {
        line += ", a quarter of the sets never made, a quarter dying during the load";
    }
    if (traffic.dup > 0) line += fmt::format(", {:g} % of the votes resent", 100 * traffic.dup);
    return line + fmt::format(", seed {}", traffic.seed);
}

bool is_async(const std::string& name) {
    const auto strategy = find_strategy(name);
    return strategy && strategy->async;
}

std::string load_line(const TrialSettings& settings, bool async) {
    if (is_open(settings)) {
        return fmt::format(
            "open loop, {} arrivals at {}/s, {} workers, latency from the intended "
            "time, {} after {} of warm-up",
            to_string(settings.arrival), three_digits(settings.rate_per_s), settings.workers,
            format_duration(settings.duration), format_duration(settings.warmup));
    }
    return fmt::format(
        "closed loop, {} callers{}, {} after {} of warm-up", settings.workers,
        async ? fmt::format(" (/async: {} calls in flight)", settings.in_flight) : "",
        format_duration(settings.duration), format_duration(settings.warmup));
}

std::string errors_line(const Tally& tally) {
    std::vector<std::string> parts;
    for (std::size_t code = 0; code < kErrorCodes; ++code) {
        if (tally.errors[code] == 0) continue;
        parts.push_back(fmt::format("{} {}", whole(tally.errors[code]),
                                    to_string(static_cast<ErrorCode>(code))));
    }
    return fmt::format("{}", fmt::join(parts, ", "));
}

std::string example_lines(const AuditResult& audit) {
    std::string text;
    for (const std::string& example : audit.examples) {
        text += fmt::format("  {}\n", example);
        // What the contract allows is shown by one example, not listed.
        if (audit.passed()) break;
    }
    return text;
}

std::string contract_line(std::string_view name, const Contract& contract) {
    return fmt::format("  {}: when answered, {}; may lose: {}\n", name, contract.acknowledged,
                       contract.may_lose);
}

std::string allowed_or_clean(const AuditResult& audit) {
    std::string text = "nothing lost, nothing doubled, no ghosts";
    if (audit.allowed_breaches > 0) {
        text += fmt::format(", {} breaches that their strategies' contracts allow",
                            whole(audit.allowed_breaches));
    }
    return text;
}

std::string audit_sentence(std::size_t runs, const AuditResult& audit) {
    const std::string what =
        runs == 1 ? std::string{"Audit"} : fmt::format("Audit of {} runs", runs);
    std::string sentence = fmt::format("{}: {} acknowledged writes against the ledger", what,
                                       whole(audit.acknowledged));
    if (audit.rows > 0) {
        sentence += fmt::format(", {} rows of which {} live", whole(audit.rows), whole(audit.live));
    }
    if (audit.unknown > 0) {
        sentence += fmt::format(", {} without an answer", whole(audit.unknown));
    }
    return sentence + fmt::format(": {}.\n", audit.passed() ? allowed_or_clean(audit) : "BROKEN");
}

Table closed_table(const PartResult& result) {
    const bool writing = result.part.settings.traffic.mix.vote > 0;
    const bool several = result.summaries.size() > 1;
    std::vector<std::string> header = {
        "strategy",
        fmt::format("{}/s", writing ? writes(result.part.settings) : std::string_view{"reads"}),
        "min .. max"};
    if (several) header = joined(header, {"x " + result.part.baseline, "min .. max"});
    const TimeUnit unit = time_unit(result.part.settings);
    header = joined(header, {unit.header("p50"), unit.header("p99"), "per commit", "errors"});
    Table table(joined(header, audit_header(result.part.settings.workload)));
    for (const Summary& summary : result.summaries) {
        const Spread& rate = writing ? summary.writes_per_s : summary.reads_per_s;
        std::vector<std::string> row = {summary.strategy, grouped(rate.median),
                                        range(rate, grouped)};
        if (several) {
            row = joined(row,
                         {two_decimals(summary.ratio.median), range(summary.ratio, two_decimals)});
        }
        row = joined(
            row,
            {unit.of(summary.service_ns.value_at(0.5)), unit.of(summary.service_ns.value_at(0.99)),
             summary.writes_per_transaction > 0 ? two_decimals(summary.writes_per_transaction)
                                                : "-",
             whole(summary.failed + summary.unknown)});
        table.add(joined(row, audit_cells(result.part.settings.workload, summary.audit)));
    }
    return table;
}

Table open_table(const PartResult& result) {
    const TimeUnit unit = time_unit(result.part.settings);
    Table table(joined({"strategy", "offered", unit.header("p50"), unit.header("p99"),
                        unit.header("p999"), unit.header("max"), "unserved", "errors"},
                       audit_header(result.part.settings.workload)));
    for (const Summary& summary : result.summaries) {
        const Histogram& response = summary.response_ns;
        const auto figure = [&](std::int64_t ns) {
            // A queue that grows has no percentiles, only a length that depends on the wait.
            return summary.overloaded ? std::string{"-"} : unit.of(ns);
        };
        table.add(joined({summary.strategy,
                          fmt::format("{:.1f} %{}", 100 * summary.offered_share,
                                      summary.overloaded ? " overloaded" : ""),
                          figure(response.value_at(0.5)), figure(response.value_at(0.99)),
                          figure(response.value_at(0.999)), figure(response.max()),
                          whole(summary.censored), whole(summary.failed + summary.unknown)},
                         audit_cells(result.part.settings.workload, summary.audit)));
    }
    return table;
}

Table run_audit_table(const TrialSettings& settings, const AuditResult& audit) {
    std::vector<std::string> header = {"strategy", "writes acked"};
    std::vector<std::string> row = {settings.strategy, whole(audit.acknowledged)};
    if (settings.workload == WorkloadKind::votes) {
        header = joined(header, {"rows", "live"});
        row = joined(row, {whole(audit.rows), whole(audit.live)});
    } else if (settings.workload == WorkloadKind::counters) {
        header = joined(header, {"sum"});
        row = joined(row, {grouped(static_cast<double>(audit.sum))});
    }
    Table table(joined(header, audit_header(settings.workload)));
    table.add(joined(row, audit_cells(settings.workload, audit)));
    return table;
}

std::string part_text(const PartResult& result) {
    const TrialSettings& settings = result.part.settings;
    std::vector<std::string> places;
    for (const Summary& summary : result.summaries) {
        if (summary.trials.empty()) continue;
        const std::string& place = summary.trials[0].place;
        if (std::find(places.begin(), places.end(), place) == places.end()) {
            places.push_back(place);
        }
    }
    const bool async =
        std::any_of(result.part.strategies.begin(), result.part.strategies.end(), is_async);
    const std::string place = places.empty() ? "?" : fmt::format("{}", fmt::join(places, " and "));
    std::string text = fmt::format("{} on {}\n  {}\n  {}", to_string(settings.workload), place,
                                   load_line(settings, async), traffic_line(settings));
    text[0] = static_cast<char>(text[0] - 'a' + 'A');
    if (result.part.rounds > 1) {
        text += fmt::format("\n  {} rounds, their order changing, a fresh {} each; medians",
                            result.part.rounds,
                            settings.workload == WorkloadKind::votes ? "database" : "store");
    }
    text += "\n\n" + (is_open(settings) ? open_table(result) : closed_table(result)).str();
    for (const Summary& summary : result.summaries) {
        for (const std::string& reason : summary.reasons) {
            text += fmt::format("  {}: {}\n", summary.strategy, reason);
        }
        text += example_lines(summary.audit);
    }
    return text + '\n';
}

}  // namespace

std::string run_text(const TrialResult& trial) {
    const TrialSettings& settings = trial.settings;
    const LoadResult& load = trial.load;
    const Tally& tally = load.tally;
    std::string text = fmt::format("{} with {} on {}\n  {}\n  {}\n  {}\n\n",
                                   to_string(settings.workload), settings.strategy, trial.place,
                                   load_line(settings, is_async(settings.strategy)),
                                   traffic_line(settings), machine_line());
    text[0] = static_cast<char>(text[0] - 'a' + 'A');

    const bool open = is_open(settings);
    const Histogram& latency = open ? load.response_ns : load.service_ns;
    const TimeUnit unit = time_unit(settings);
    Table table({"strategy", fmt::format("{}/s", writes(settings)), "reads/s", "ok", "failed",
                 "unknown", "unserved", unit.header("p50"), unit.header("p99"), unit.header("p999"),
                 unit.header("max")});
    table.add({settings.strategy, grouped(load.per_second(tally.writes_ok())),
               grouped(load.per_second(tally.reads_ok)), whole(tally.ok()), whole(tally.failed),
               whole(tally.unknown), whole(load.censored), unit.of(latency.value_at(0.5)),
               unit.of(latency.value_at(0.99)), unit.of(latency.value_at(0.999)),
               unit.of(latency.max())});
    text += table.str();
    if (open) {
        text += fmt::format(
            "  of the schedule {:.2f} % was sent in time; a call itself took "
            "p50 {} {}, p99 {} {}\n",
            100 * load.offered.share, unit.of(load.service_ns.value_at(0.5)), unit.name,
            unit.of(load.service_ns.value_at(0.99)), unit.name);
    }
    if (tally.failed + tally.unknown > 0) text += fmt::format("  errors: {}\n", errors_line(tally));
    if (load.repeated > 0) {
        text += fmt::format(
            "  {} votes repeated a user, because their items had run out of them; "
            "raise --users\n",
            whole(load.repeated));
    }
    if (load.ledger_full && !open) {
        text += fmt::format("  the load ended with --max-ops {}, before its time\n",
                            whole(settings.max_operations));
    }
    text += '\n' + run_audit_table(settings, trial.audit).str() + example_lines(trial.audit);
    text += "\nWhat an acknowledgement means\n" + contract_line(settings.strategy, trial.contract);
    for (const std::string& reason : trial.reasons) {
        text += fmt::format("{}: {}\n", to_string(trial.conclusion), reason);
    }
    return text;
}

std::string compare_text(const Comparison& comparison) {
    std::string text = fmt::format("{}\n{}\n\n", comparison.title, machine_line());
    AuditResult all;
    std::size_t runs = 0;
    std::string contracts;
    std::vector<std::string> named;
    for (const PartResult& result : comparison.parts) {
        text += part_text(result);
        for (const Summary& summary : result.summaries) {
            all.add(summary.audit);
            runs += summary.trials.size();
            if (summary.trials.empty() ||
                std::find(named.begin(), named.end(), summary.strategy) != named.end()) {
                continue;
            }
            named.push_back(summary.strategy);
            contracts += contract_line(summary.strategy, summary.trials[0].contract);
        }
    }
    for (const std::string& note : comparison.notes) text += note + "\n\n";
    text += "What an acknowledgement means\n" + contracts + '\n' + audit_sentence(runs, all);
    if (comparison.conclusion == Conclusion::inconclusive) {
        text += "Inconclusive: see the reasons above.\n";
    }
    return text;
}

std::string audit_text(const std::vector<FolderAudit>& audits) {
    Table table(joined({"run", "strategy", "state", "writes acked", "unanswered", "rows", "live"},
                       audit_header(WorkloadKind::votes)));
    std::string notes;
    AuditResult all;
    for (const FolderAudit& audit : audits) {
        const AuditResult& result = audit.result;
        std::vector<std::string> cells = audit_cells(WorkloadKind::votes, result);
        if (audit.conclusion == Conclusion::inconclusive) cells = {"-", "-", "-", "-", "-"};
        table.add(joined({audit.folder.filename().string(), audit.settings.strategy, audit.state,
                          whole(result.acknowledged), whole(result.unknown), whole(result.rows),
                          whole(result.live)},
                         cells));
        for (const std::string& reason : audit.reasons) {
            notes += fmt::format("  {}: {}\n", audit.folder.filename().string(), reason);
        }
        notes += example_lines(result);
        all.add(result);
    }
    return table.str() + notes + audit_sentence(audits.size(), all);
}

}  // namespace hotcount::loadtest
