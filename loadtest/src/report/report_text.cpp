#include "report.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>

#include "load/words.hpp"
#include "load/workload.hpp"
#include "machine.hpp"

namespace hotcount::loadtest {
namespace {

std::string_view heading(WorkloadKind workload) {
    return word_of(workload, {"Votes", "Counters", "Limiters", "Sorted sets"});
}

std::string traffic_line(const TrialSettings& settings) {
    const TrafficSettings& traffic = settings.traffic;
    if (traffic.trace) {
        return fmt::format("{} operations on {} items, of {}", whole(traffic.trace->lines().size()),
                           whole(traffic.items), traffic.trace->path().string());
    }
    std::string line = traffic.items == 1
                           ? "one item"
                           : fmt::format("{} items, Zipf {:g}", whole(traffic.items), traffic.zipf);
    line += fmt::format(", {} users, vote={:g},unvote={:g},read={:g}", whole(traffic.users),
                        traffic.mix.vote, traffic.mix.unvote, traffic.mix.read);
    if (settings.workload == WorkloadKind::limiter) {
        line += fmt::format(", each item limited to {}", settings.limit.str());
    } else if (settings.workload == WorkloadKind::zset) {
        line += ", a quarter of the sets never made, a quarter dying during the load";
    }
    if (traffic.dup > 0) line += fmt::format(", {:g} % of the votes resent", 100 * traffic.dup);
    return line + fmt::format(", seed {}", traffic.seed);
}

/// A program of the user's own may say nothing of it.
std::string place_of(const TrialResult& trial) {
    return trial.place.empty() ? "a place of its own" : trial.place;
}

bool is_async(const std::string& name) {
    const auto strategy = find_strategy(name);
    return strategy && strategy->async;
}

/// The share of writes among the operations of this mix.
double share_of_writes(const Mix& mix) {
    return (mix.vote + mix.unvote) / (mix.vote + mix.unvote + mix.read);
}

std::string load_line(const TrialSettings& settings, bool async) {
    const std::string in_flight =
        async ? fmt::format(" (/async: {} calls in flight)", settings.in_flight) : "";
    const std::string length =
        fmt::format("{} after {} of warm-up", format_duration(settings.duration),
                    format_duration(settings.warmup));
    if (!is_open(settings)) {
        return fmt::format("closed loop, {} callers{}, {}", settings.workers, in_flight, length);
    }
    return fmt::format(
        "open loop, {} operations/s ({} {} among them), {} arrivals, {} workers{}, latency from "
        "the "
        "intended time, {}",
        three_digits(settings.rate_per_s),
        three_digits(settings.rate_per_s * share_of_writes(settings.traffic.mix)),
        writes_name(settings.workload),
        settings.profile.constant() ? to_string(settings.arrival) : settings.profile.text,
        settings.workers, in_flight, length);
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
        // One example is enough for breaches that the contract allows.
        if (audit.passed()) break;
    }
    return text;
}

std::string contract_line(std::string_view name, const Contract& contract) {
    std::string line = fmt::format("  {}: when answered, {}; may lose: {}", name,
                                   contract.acknowledged, contract.may_lose);
    const auto strategy = find_strategy(name);
    const ReadPromise reads = strategy ? strategy->reads_if(contract.exact) : ReadPromise{};
    if (reads.kind != ReadPromise::Kind::none) line += "; reads: " + reads.str();
    return line + '\n';
}

/// The line about the staleness of reads.
std::string reads_line(const AuditResult& audit) {
    if (audit.reads == 0) return {};
    const auto ms = [&](double quantile) {
        return three_digits(static_cast<double>(audit.staleness_ns.value_at(quantile)) * 1e-6);
    };
    const auto share = [&](std::uint64_t count) {
        return 100 * static_cast<double>(count) / static_cast<double>(audit.reads);
    };
    const std::uint64_t stale = audit.reads_stale();
    std::string line = fmt::format("  reads: {} checked, ", whole(audit.reads));
    std::string percentiles;
    for (const auto& [name, quantile] : {std::pair{"p50", 0.5}, std::pair{"p99", 0.99}}) {
        if (!can_tell(audit.staleness_ns.count(), quantile)) continue;
        percentiles += fmt::format("{} {} ms, ", name, ms(quantile));
    }
    std::string back;
    if (audit.reads_went_back > 0) {
        back = fmt::format("; {} went back: less than an earlier one, and too little taken away",
                           whole(audit.reads_went_back));
    }
    if (stale + audit.reads_never_right == 0) {
        return line + "each right when it was asked" + back + '\n';
    }
    if (stale > 0) {
        line += fmt::format("{:.3g} % stale: {}at most {} ms and {} writes behind", share(stale),
                            percentiles, ms(1),
                            whole(static_cast<std::uint64_t>(audit.versions_behind.max())));
    }
    if (audit.reads_never_right > 0) {
        line += fmt::format("{}{} ({:.3g} %) right at no moment, {} of them against the promise",
                            stale > 0 ? "; " : "", whole(audit.reads_never_right),
                            share(audit.reads_never_right), whole(audit.wrong_reads));
    }
    return line + back + '\n';
}

std::string allowed_or_clean(const AuditResult& audit) {
    if (audit.acknowledged == 0) return "no write to look for";
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
    return sentence + fmt::format(": {}.\n", audit.passed() ? allowed_or_clean(audit) : "broken");
}

std::string not_audited_sentence(std::size_t audited, std::size_t runs) {
    if (audited == runs) return {};
    return fmt::format("Not audited: {} of {} runs.\n", runs - audited, runs);
}

/// Lines on the control, the best baseline and disturbances of the machine.
std::string reference_lines(const PartResult& result) {
    const Part& part = result.part;
    std::string text;
    if (const Summary* control = result.with_role(Role::control)) {
        text += fmt::format("  {} is {} once more{}.\n", control->strategy, part.baseline,
                            part.control_slower > 0 ? fmt::format(", made {:g} % slower on purpose",
                                                                  100 * part.control_slower)
                                                    : ": so much is noise");
    }
    if (const Summary* best = result.with_role(Role::best)) {
        text +=
            result.best_is_faster()
                ? fmt::format("  {} is {} with the number of callers that suits it best.\n",
                              best->strategy, part.baseline)
                : fmt::format("  {} was the best of short tries, and no faster in the rounds.\n",
                              best->strategy);
    }
    for (const std::string& note : result.notes) text += fmt::format("  {}\n", note);
    return text;
}

/// Latency from sending to answer, which in an open loop differs from latency since the due time.
std::string call_itself(const TrialResult& trial) {
    const Histogram& times = trial.load.service_ns;
    const auto at = [&](double quantile) {
        return time_text(trial.settings, times.value_at(quantile));
    };
    if (!can_tell(times.count(), 0.5)) return {};
    std::string text = "; a call itself took p50 " + at(0.5);
    if (can_tell(times.count(), 0.99)) text += ", p99 " + at(0.99);
    return text;
}

/// Strategies that came near the generator's ceiling; nothing if none did.
std::string ceiling_lines(const PartResult& result) {
    std::string text;
    for (const Summary& summary : result.summaries) {
        const auto nearest = std::min_element(
            summary.trials.begin(), summary.trials.end(),
            [](const TrialResult& a, const TrialResult& b) { return a.headroom() < b.headroom(); });
        if (nearest == summary.trials.end() || !nearest->near_ceiling()) continue;
        text += fmt::format("  {}: limited by {}\n", summary.strategy, limit_of(*nearest));
    }
    return text;
}

/// The strategies named by the user that did not run, with their load; empty if all of them ran.
std::string not_run_sentence(const Comparison& comparison) {
    std::vector<std::string> names;
    for (const PartResult& result : comparison.parts) {
        for (const Summary& summary : result.summaries) {
            if (summary.role != Role::named || !summary.not_run()) continue;
            names.push_back(comparison.parts.size() == 1
                                ? summary.strategy
                                : fmt::format("{} ({})", summary.strategy, result.part.name));
        }
    }
    return names.empty() ? "" : fmt::format("Not run: {}.\n", fmt::join(names, ", "));
}

std::string rounds_line(const PartResult& result, bool wide) {
    const Part& part = result.part;
    std::string line =
        fmt::format("\n  {} rounds in drawn order, a fresh {} each; medians{}", part.rounds,
                    part.settings.workload == WorkloadKind::votes ? "database" : "store",
                    wide ? ", least and most" : "");
    const std::size_t whole = result.whole_rounds();
    if (whole < part.rounds) line += fmt::format("\n  it ended after {} whole rounds", whole);
    return line;
}

/// Why a table that says what servers paid has gaps.
std::string server_lines(const PartResult& result) {
    std::vector<std::pair<std::string, std::vector<std::string>>> gaps;
    bool any = false;
    for (const Summary& summary : result.summaries) {
        if (summary.trials.empty()) continue;
        const ServerWork& work = summary.trials[0].server;
        any = any || work.log_bytes || work.cpu_s;
        for (const std::string& why : work.unknown) {
            const auto known = std::find_if(gaps.begin(), gaps.end(),
                                            [&](const auto& gap) { return gap.first == why; });
            auto& gap =
                known == gaps.end() ? gaps.emplace_back(why, std::vector<std::string>{}) : *known;
            gap.second.push_back(summary.strategy);
        }
    }
    std::string text;
    for (const auto& [why, names] : gaps) {
        text += fmt::format("  not known of {}: {}\n", fmt::join(names, ", "), why);
    }
    return any ? text : "";
}

/// The facts of a trial that are not in its tables, a line for each.
std::string load_lines(const TrialResult& trial) {
    const TrialSettings& settings = trial.settings;
    const LoadResult& load = trial.load;
    const Tally& tally = load.tally;
    std::string text;
    if (is_open(settings)) {
        text += fmt::format("  of the operations due {:.2f} % were sent in time{}\n",
                            100 * load.offered.share, call_itself(trial));
    }
    if (tally.failed + tally.unknown > 0) {
        text += fmt::format("  errors: {}\n", errors_line(tally));
    }
    if (load.censored > 0) {
        text += fmt::format("  {} operations were due and not served when the load ended\n",
                            whole(load.censored));
    }
    if (tally.failed + tally.unknown + load.censored > 0) text += failed_in_percentiles(settings);
    text += fmt::format("  the rate was limited by {}\n", limit_of(trial));
    for (const Checked& one : trial.checked) {
        text += fmt::format("  threshold {}: {}, {}\n", one.threshold.text, one.figure,
                            one.met       ? "met"
                            : one.too_few ? "not known"
                                          : "MISSED");
    }
    if (!trial.recoveries.empty()) text += recovery_lines(trial.recoveries, trial.audit);
    if (load.repeated > 0) {
        text += fmt::format(
            "  {} votes repeated a user, because their items had run out of them; raise --users\n",
            whole(load.repeated));
    }
    if (load.ledger_full && !is_open(settings)) {
        text += fmt::format("  the load ended with --max-ops {}, before its time\n",
                            whole(settings.max_operations));
    }
    const std::size_t no_round = 0;
    for (const std::string& line : disturbances({&trial.machine, 1}, {&no_round, 1})) {
        text += fmt::format("  the machine was disturbed: {}\n", line);
    }
    return text;
}

std::string wide_run(const TrialResult& trial) {
    std::string text = run_table(trial).str();
    if (trial.headroom() > 0) {
        text += fmt::format("  the load generator drives {} times this rate at most\n",
                            three_digits(trial.headroom()));
    }
    for (const std::string& why : trial.server.unknown) {
        if (trial.server.log_bytes || trial.server.cpu_s) {
            text += fmt::format("  not known: {}\n", why);
        }
    }
    if (!trial.load.outcomes.empty()) text += '\n' + outcome_table(trial).str();
    return text + '\n' + run_audit_table(trial).str();
}

std::string more_line(bool wide) {
    return wide ? ""
                : "\nMore: --wide has all columns, --json all figures; --out DIR keeps the run for "
                  "`hotcount-load audit` and `hotcount report`.\n";
}

}  // namespace

std::string part_text(const PartResult& result, bool wide) {
    const TrialSettings& settings = result.part.settings;
    if (result.not_run()) {
        return fmt::format("The load {}: not run\n\n", result.part.name);
    }
    std::vector<std::string> places;
    for (const Summary& summary : result.summaries) {
        if (summary.trials.empty()) continue;
        const std::string place = place_of(summary.trials[0]);
        if (std::find(places.begin(), places.end(), place) == places.end()) {
            places.push_back(place);
        }
    }
    const bool async =
        std::any_of(result.part.strategies.begin(), result.part.strategies.end(), is_async);
    const std::string place = places.empty() ? "?" : fmt::format("{}", fmt::join(places, " and "));
    std::string text = fmt::format("{} on {}\n  {}\n  {}", heading(settings.workload), place,
                                   load_line(settings, async), traffic_line(settings));
    if (result.part.rounds > 1) text += rounds_line(result, wide);
    text += "\n\n" + (wide ? comparison_table(result).str() : short_comparison(result)) +
            reference_lines(result) + ceiling_lines(result);
    if (wide) text += server_lines(result);
    for (const Summary& summary : result.summaries) {
        text += recovery_lines(summary);
        if (!wide) continue;
        for (const std::string& reason : summary.reasons) {
            text += fmt::format("  {}: {}\n", summary.strategy, reason);
        }
        text += example_lines(summary.audit);
    }
    text += '\n';
    return wide ? text : wrapped(text);
}

std::string run_text(const TrialResult& trial, bool wide) {
    const TrialSettings& settings = trial.settings;
    std::string text = fmt::format("{} with {} on {}\n  {}\n  {}\n  {}\n\n",
                                   heading(settings.workload), settings.strategy, place_of(trial),
                                   load_line(settings, is_async(settings.strategy)),
                                   traffic_line(settings), machine_line());
    text += (wide ? wide_run(trial) : short_run(trial)) + load_lines(trial);
    text += reads_line(trial.audit) + example_lines(trial.audit);
    if (trial.audited && !wide) text += '\n' + audit_sentence(1, trial.audit);
    text += "\nWhat an acknowledgement means\n" + contract_line(settings.strategy, trial.contract);
    for (const std::string& reason : trial.reasons) {
        text += fmt::format("{}: {}\n", to_string(trial.conclusion), reason);
    }
    text += more_line(wide);
    return wide ? text : wrapped(text);
}

std::string title_text(const std::string& title) {
    return fmt::format("{}\n{}\n\n", title, machine_line());
}

std::string conclusion_text(const Comparison& comparison, bool wide) {
    std::string text;
    AuditResult all;
    std::size_t runs = 0;
    std::size_t audited = 0;
    std::string contracts;
    std::vector<std::string> named;
    for (const PartResult& result : comparison.parts) {
        for (const Summary& summary : result.summaries) {
            all.add(summary.audit);
            runs += summary.trials.size();
            audited += summary.audited;
            if (summary.trials.empty() || summary.role != Role::named ||
                std::find(named.begin(), named.end(), summary.strategy) != named.end()) {
                continue;
            }
            named.push_back(summary.strategy);
            contracts += contract_line(summary.strategy, summary.trials[0].contract);
        }
    }
    for (const std::string& note : comparison.notes) text += note + "\n\n";
    if (wide) text += "What an acknowledgement means\n" + contracts + '\n';
    if (audited > 0) text += audit_sentence(audited, all);
    text += not_audited_sentence(audited, runs) + not_run_sentence(comparison);
    if (comparison.conclusion == Conclusion::inconclusive) {
        text += "Inconclusive: see the reasons above.\n";
    }
    if (runs > 0) {
        text +=
            '\n' + fastest_sentences(comparison) + lost_sentence(comparison, audited, runs, all);
    }
    text += comparison.next.empty() ? more_line(wide) : comparison.next;
    return wide ? text : wrapped(text);
}

std::string audit_text(const std::vector<FolderAudit>& audits) {
    std::string examples;
    std::vector<std::pair<std::string, std::vector<std::string>>> reasons;  // Of which folders.
    AuditResult all;
    std::size_t audited = 0;
    for (const FolderAudit& audit : audits) {
        if (audit.audited) ++audited;
        for (const std::string& reason : audit.reasons) {
            const auto known = std::find_if(reasons.begin(), reasons.end(),
                                            [&](const auto& one) { return one.first == reason; });
            auto& of_one = known == reasons.end()
                               ? reasons.emplace_back(reason, std::vector<std::string>{})
                               : *known;
            of_one.second.push_back(audit.folder.filename().string());
        }
        examples += example_lines(audit.result);
        all.add(audit.result);
    }
    std::string notes;
    for (const auto& [reason, folders] : reasons) {
        notes += fmt::format(
            "  {}{}: {}\n", folders.front(),
            folders.size() > 1 ? fmt::format(" and {} more", folders.size() - 1) : "", reason);
    }
    notes += examples;
    std::string text = folder_audit_table(audits).str() + notes;
    if (audited > 0) text += audit_sentence(audited, all);
    return text + not_audited_sentence(audited, audits.size());
}

}  // namespace hotcount::loadtest
