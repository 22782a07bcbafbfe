// The tables that fit a terminal of kColumns: the figures that decide, and one sentence for all that is 0.
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "columns.hpp"
#include "report.hpp"

namespace hotcount::loadtest {
namespace {

constexpr std::size_t kNameWidth = 28;
constexpr std::size_t kLongestBar = 24;

std::string short_name(std::string name) {
    if (name.size() <= kNameWidth) return name;
    return name.substr(0, kNameWidth - 2) + "..";
}

/// A percentile, or why it is not known: too few calls, or no longer than timers are late.
std::string percentile(const Histogram& times, double quantile, const TrialSettings& settings,
                       std::int64_t floor_ns) {
    if (times.count() == 0 || !can_tell(times.count(), quantile)) return "-";
    const std::int64_t ns = times.value_at(quantile);
    if (ns >= settings.timeout.count()) return "> " + format_duration(settings.timeout);
    const bool hidden = is_open(settings) && ns <= 2 * floor_ns;
    return hidden ? "<= " + time_text(settings, 2 * floor_ns) : time_text(settings, ns);
}

/// "-" where the workload has no such finding, or where nothing was audited.
std::string finding(const AuditResult& audit, std::string_view header, WorkloadKind workload,
                    bool audited) {
    for (const AuditColumn& column : audit_columns()) {
        const auto& only = column.workloads;
        if (column.header != header || !audited) continue;
        if (only.empty() || std::find(only.begin(), only.end(), workload) != only.end()) {
            return grouped(column.value(audit).get<double>());
        }
    }
    return "-";
}

using Audits = std::vector<std::pair<std::string, const AuditResult*>>;

/// The meaning of a finding whose name does not say it, in parentheses.
std::string_view meaning_of(std::string_view header) {
    if (header == "drift") return " (by how many votes the counts differ from the vote rows)";
    if (header == "ghost") return " (votes that no caller sent)";
    if (header == "told wrong") {
        return " (answers that no order of the calls explains, or staler than promised)";
    }
    return {};
}

/// A line for each finding that has no column in the table; `zero` gets the findings that are 0 for
/// all strategies.
std::string other_findings(const Audits& audits, WorkloadKind workload,
                           std::vector<std::string>& zero) {
    constexpr std::array<std::string_view, 4> kNone = {"lost", "double", "refused", "queued"};
    std::string text;
    for (const AuditColumn& column : audit_columns()) {
        const auto& only = column.workloads;
        if ((column.tables & kCompare) == 0 || column.format != Format::whole ||
            std::find(kNone.begin(), kNone.end(), column.header) != kNone.end() ||
            (!only.empty() && std::find(only.begin(), only.end(), workload) == only.end())) {
            continue;
        }
        const std::size_t before = text.size();
        for (const auto& [name, found] : audits) {
            const auto count = column.value(*found).get<double>();
            if (count == 0) continue;
            text += fmt::format("  {}: {} {}{}{}\n", name, column.header, grouped(count),
                                meaning_of(column.header),
                                found->passed() ? ", which its contract allows" : "");
        }
        if (text.size() == before) {
            zero.push_back(fmt::format("{}{}", column.header, meaning_of(column.header)));
        }
    }
    for (const auto& [name, found] : audits) {
        const std::int64_t stale_ns = found->staleness_ns.value_at(0.99);
        if (!can_tell(found->staleness_ns.count(), 0.99) || stale_ns == 0) continue;
        text += fmt::format("  {}: of 100 reads, 99 were at most {} ms stale\n", name,
                            three_digits(static_cast<double>(stale_ns) * 1e-6));
    }
    return text;
}

std::string zero_sentence(const std::vector<std::string>& zero) {
    return zero.empty() ? "" : fmt::format("  0 everywhere: {}.\n", fmt::join(zero, ", "));
}

std::uint64_t without_success(const TrialResult& trial) {
    return trial.load.tally.failed + trial.load.tally.unknown + trial.load.censored;
}

std::string reasons_of(const Summary& summary) {
    if (summary.reasons.empty()) return {};
    const std::size_t more = summary.reasons.size() - 1;
    return fmt::format("  {}: {}{}\n", summary.strategy, summary.reasons.front(),
                       more == 0 ? "" : fmt::format(" (and {} more, in --wide)", more));
}

Table bars_table(const PartResult& result, std::size_t bar) {
    const TrialSettings& settings = result.part.settings;
    const bool writes = settings.traffic.mix.vote > 0;
    const bool has_ratio = result.tests() > 0 && (!is_open(settings) || result.part.rounds > 1);
    const auto rate_of = [&](const Summary& one) {
        return writes ? one.writes_per_s.median : one.reads_per_s.median;
    };
    double most = 1;
    for (const Summary& one : result.summaries) most = std::max(most, rate_of(one));
    const auto rate_cell = [&](const std::string& rate, double share) {
        const auto length = static_cast<std::size_t>(share * static_cast<double>(bar) + 0.5);
        return fmt::format("{:>9} {:<{}}", rate, std::string(length, '#'), bar);
    };
    std::vector<std::string> header = {
        "strategy", rate_cell(writes ? writes_name(settings.workload) + "/s" : "reads/s", 0)};
    if (has_ratio) header.emplace_back(is_open(settings) ? "p99 ratio" : "ratio");
    for (const char* name : {"p99", "lost", "doubled", "verdict"}) header.emplace_back(name);
    Table table(header);
    for (const Summary& one : result.summaries) {
        const bool audited = one.audited == one.trials.size() && !one.not_run();
        std::vector<std::string> row = {
            short_name(one.strategy), one.not_run()
                                          ? rate_cell("-", 0)
                                          : rate_cell(grouped(rate_of(one)), rate_of(one) / most)};
        const Spread& ratio = is_open(settings) ? one.p99_ratio : one.ratio;
        if (has_ratio) {
            row.push_back(ratio.max == 0 || one.overloaded ? "-" : three_digits(ratio.median));
        }
        const Histogram& times = is_open(settings) ? one.response_ns : one.service_ns;
        row.push_back(one.overloaded ? "-" : percentile(times, 0.99, settings, one.floor_ns));
        row.push_back(finding(one.audit, "lost", settings.workload, audited));
        row.push_back(finding(one.audit, "double", settings.workload, audited));
        row.emplace_back(one.verdict());
        table.add(std::move(row));
    }
    return table;
}

}  // namespace

std::string wrapped(const std::string& text, std::size_t hanging) {
    std::string done;
    for (std::size_t from = 0; from < text.size();) {
        const std::size_t end = std::min(text.find('\n', from), text.size());
        std::string line = text.substr(from, end - from);
        from = end + 1;
        const std::size_t indent = line.find_first_not_of(' ');
        while (line.size() > kColumns) {
            const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
            std::size_t at = line.rfind(' ', kColumns);
            if (at == std::string::npos || at < first) {
                at = line.find(' ', std::max(kColumns, first));  // A word that fits no line.
            }
            if (at == std::string::npos) break;
            done += line.substr(0, at) + '\n';
            line = std::string(hanging > 0 ? hanging : indent + 2, ' ') + line.substr(at + 1);
        }
        done += line + '\n';
    }
    return done;
}

std::string short_comparison(const PartResult& result) {
    const TrialSettings& settings = result.part.settings;
    const std::string plain = bars_table(result, 0).str();
    const std::size_t width = plain.find('\n');
    const std::size_t left = kColumns > width ? kColumns - width : 0;
    std::string text = bars_table(result, std::min(kLongestBar, left)).str();
    Audits audits;
    std::vector<std::string> zero;
    std::string lines;
    bool any_failed = false;
    for (const Summary& one : result.summaries) {
        if (one.audited > 0) audits.emplace_back(one.strategy, &one.audit);
        std::uint64_t failed = 0;
        for (const TrialResult& trial : one.trials) failed += without_success(trial);
        any_failed = any_failed || failed > 0;
        if (failed > 0 && one.conclusion == Conclusion::passed) {
            lines += fmt::format("  {}: {} calls without a success\n", one.strategy,
                                 grouped(static_cast<double>(failed)));
        }
        lines += reasons_of(one);
    }
    if (!any_failed) zero.emplace_back("calls without a success");
    lines += other_findings(audits, settings.workload, zero);
    if (any_failed) lines += failed_in_percentiles(settings);
    if (result.tests() > 0 && !is_open(settings)) {
        text += fmt::format("  ratio: to {}, the median of the ratios within rounds\n",
                            result.part.baseline);
    }
    return text + zero_sentence(zero) + lines;
}

std::string failed_in_percentiles(const TrialSettings& settings) {
    return fmt::format(
        "  a call that failed, had no answer or was not served counts in p50 ... max as slower "
        "than the time limit of {}\n",
        format_duration(settings.timeout));
}

std::string short_run(const TrialResult& trial) {
    const TrialSettings& settings = trial.settings;
    const std::int64_t floor_ns = timer_floor_ns({&trial.machine, 1});
    const Tally& tally = trial.load.tally;
    const auto rate = [&](std::uint64_t count) { return grouped(trial.load.per_second(count)); };
    std::vector<std::string> header = {writes_name(settings.workload) + "/s",
                                       "reads/s",
                                       "p50",
                                       "p99",
                                       "p99.9",
                                       "max",
                                       "lost",
                                       "doubled",
                                       "verdict"};
    std::vector<std::string> row = {rate(tally.writes_ok()), rate(tally.reads_ok)};
    for (const double quantile : {0.5, 0.99, 0.999, 1.0}) {
        row.push_back(percentile(trial.times(), quantile, settings, quantile < 0.9 ? 0 : floor_ns));
    }
    row.push_back(finding(trial.audit, "lost", settings.workload, trial.audited));
    row.push_back(finding(trial.audit, "double", settings.workload, trial.audited));
    row.emplace_back(trial.verdict());
    const auto table_of_it = [&] {
        Table table(header);
        table.add(row);
        return table.str();
    };
    // The title has the strategy as well: where there is no room, its column goes.
    std::string table = table_of_it();
    header.emplace(header.begin(), "strategy");
    row.insert(row.begin(), short_name(settings.strategy));
    if (table_of_it().find('\n') <= kColumns) table = table_of_it();
    std::vector<std::string> zero;
    if (without_success(trial) == 0) zero.emplace_back("calls without a success");
    std::string lines;
    if (trial.audited) {
        lines = other_findings({{settings.strategy, &trial.audit}}, settings.workload, zero);
    }
    return table + (zero.empty() ? "" : fmt::format("  0: {}\n", fmt::join(zero, ", "))) + lines;
}

}  // namespace hotcount::loadtest
