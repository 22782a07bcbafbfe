#include "report.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "columns.hpp"
#include "load/words.hpp"
#include "numbers.hpp"

namespace hotcount::loadtest {
namespace {

using nlohmann::json;

void put(json& document, const std::string& path, json value) {
    if (path.empty() || value.is_null()) return;
    document[json::json_pointer("/" + path)] = std::move(value);
}

/// Milliseconds for what goes to a disk, microseconds for what stays in memory.
struct TimeUnit {
    const char* name;
    double per_us;
};
TimeUnit time_unit(const TrialSettings& settings) {
    return settings.workload == WorkloadKind::votes ? TimeUnit{"ms", 1e-3} : TimeUnit{"us", 1};
}

std::string cell(const json& value, Format format, const TrialSettings& settings) {
    if (value.is_null()) return "-";
    switch (format) {
        case Format::whole:
            return grouped(value.get<double>());
        case Format::decimal:
            return value.get<double>() > 0 ? three_digits(value.get<double>()) : "-";
        case Format::ratio:
            return three_digits(value.get<double>());
        case Format::range:
            return fmt::format("{} .. {}", cell(value["min"], Format::time, settings),
                               cell(value["max"], Format::time, settings));
        case Format::percent:
            return fmt::format("{:.1f} %", 100 * value.get<double>());
        case Format::time:
            return three_digits(value.get<double>() * time_unit(settings).per_us);
        case Format::yes_no:
            return value.get<bool>() ? "yes" : "NO";
        case Format::words:
            break;
    }
    return value.get<std::string>();
}

/// The context on which the cells of a table depend besides their values.
struct TableContext {
    const TrialSettings& settings;
    std::string baseline{};
    std::string best{};
    std::int64_t floor_ns{0};  ///< Of the timers.
};

/// One line of a table, with the header of each cell.
struct Line {
    std::vector<std::string> header;
    std::vector<std::string> cells;

    void add(std::string name, std::string text) {
        header.push_back(std::move(name));
        cells.push_back(std::move(text));
    }
    /// A value over several rounds takes two cells: its median and its range.
    void add(const ReportColumn& column, const json& value, const TableContext& context) {
        const TrialSettings& settings = context.settings;
        const auto text = [&](const json& one) { return cell(one, column.format, settings); };
        std::string name = fmt::format(
            fmt::runtime(column.header), fmt::arg("writes", writes_name(settings.workload)),
            fmt::arg("unit", time_unit(settings).name), fmt::arg("baseline", context.baseline),
            fmt::arg("best", context.best));
        if (!value.is_object() || column.format == Format::range) {
            const double floor_us = 2 * in_us(context.floor_ns);
            const bool hidden = column.begins_with_sleep && value.is_number() &&
                                value.get<double>() > 0 && value.get<double>() <= floor_us;
            return add(std::move(name),
                       hidden ? fmt::format("<= {} (floor)", text(floor_us)) : text(value));
        }
        // No round has a ratio: the baseline did not run.
        if (column.format == Format::ratio && value["max"] == 0) {
            add(std::move(name), "-");
            return add("min .. max", "-");
        }
        add(std::move(name), text(value["median"]));
        add("min .. max", fmt::format("{} .. {}", text(value["min"]), text(value["max"])));
    }
    void add(const AuditResult& found, WorkloadKind workload, unsigned table, bool complete) {
        for (const AuditColumn& column : audit_columns()) {
            const auto& only = column.workloads;
            if ((column.tables & table) == 0) continue;
            if (!only.empty() && std::find(only.begin(), only.end(), workload) == only.end()) {
                continue;
            }
            add(column.header,
                column.finding && !complete ? "-" : cell(column.value(found), column.format, {}));
        }
    }
};

Table table_of(const std::vector<Line>& lines) {
    Table table(lines.empty() ? std::vector<std::string>{""} : lines.front().header);
    for (const Line& line : lines) table.add(line.cells);
    return table;
}

}  // namespace

std::string writes_name(WorkloadKind workload) {
    return std::string{word_of(workload, {"votes", "adds", "hits", "upserts"})};
}

json trial_figures(const TrialResult& trial) {
    json figures = json::object();
    for (const ReportColumn& column : report_columns()) {
        if (column.trial.value) put(figures, column.trial.path, column.trial.value(trial));
    }
    return figures;
}

json summary_figures(const Summary& summary) {
    json figures = json::object();
    for (const ReportColumn& column : report_columns()) {
        if (column.summary.value) put(figures, column.summary.path, column.summary.value(summary));
    }
    return figures;
}

json audit_figures(const AuditResult& found) {
    json figures = json::object();
    for (const AuditColumn& column : audit_columns())
        put(figures, column.path, column.value(found));
    return figures;
}

Table run_table(const TrialResult& trial) {
    const unsigned table = is_open(trial.settings) ? kRunOpen : kRunClosed;
    const TableContext context{trial.settings, "", "", timer_floor_ns({&trial.machine, 1})};
    Line line;
    line.add("strategy", trial.settings.strategy);
    for (const ReportColumn& column : report_columns()) {
        if ((column.tables & table) == 0) continue;
        if (column.shown_in_run != nullptr && !column.shown_in_run(trial.settings)) continue;
        const json value = column.trial.value(trial);
        if (value.is_null()) continue;
        line.add(column, value, context);
        if (column.trial_times &&
            !can_tell((trial.load.*column.trial_times).count(), column.quantile)) {
            line.cells.back() = "-";
        }
    }
    return table_of({line});
}

Table run_audit_table(const TrialResult& trial) {
    Line line;
    line.add("strategy", trial.settings.strategy);
    line.add(trial.audit, trial.settings.workload, kRunAudit, trial.audited);
    return table_of({line});
}

Table comparison_table(const PartResult& result) {
    const TrialSettings& settings = result.part.settings;
    const unsigned table = is_open(settings) ? kCompareOpen : kCompareClosed;
    const Summary* const best = result.with_role(Role::best);
    TableContext context{settings, result.part.baseline, best ? best->strategy : "", 0};
    std::vector<Line> lines;
    for (const Summary& summary : result.summaries) {
        context.floor_ns = summary.floor_ns;
        Line& line = lines.emplace_back();
        line.add("strategy", summary.strategy);
        for (const ReportColumn& column : report_columns()) {
            if ((column.tables & table) == 0) continue;
            if (column.shown != nullptr && !column.shown(result)) continue;
            const std::size_t first = line.cells.size();
            line.add(column, column.summary.value(summary), context);
            if (column.summary_times &&
                !can_tell((summary.*column.summary_times).count(), column.quantile)) {
                line.cells.back() = "-";
            }
            if (column.format == Format::range) {
                const std::string& figure = line.cells[line.cells.size() - 2];
                if (figure == "-" || figure.ends_with("(floor)")) line.cells.back() = "-";
            }
            if (!summary.overloaded) continue;
            // A queue that grows has no percentiles, only a length that depends on the wait.
            if (column.format == Format::time || column.format == Format::range ||
                column.format == Format::ratio) {
                std::fill(line.cells.begin() + static_cast<std::ptrdiff_t>(first), line.cells.end(),
                          "-");
            }
            if (column.format == Format::percent) line.cells.back() += " overloaded";
        }
        line.add(summary.audit, settings.workload, kCompare,
                 summary.audited == summary.trials.size());
        if (!summary.not_run()) continue;
        std::fill(line.cells.begin() + 1, line.cells.end(), "-");
        line.cells.back() = "not run";
    }
    return table_of(lines);
}

Table folder_audit_table(const std::vector<FolderAudit>& audits) {
    std::vector<Line> lines;
    for (const FolderAudit& audit : audits) {
        Line& line = lines.emplace_back();
        line.add("run", audit.folder.filename().string());
        line.add("strategy", audit.settings.strategy);
        line.add("state", audit.state);
        // One table for runs of all workloads has the columns of votes.
        const auto first = static_cast<std::ptrdiff_t>(line.cells.size());
        line.add(audit.result, WorkloadKind::votes, kFolderAudit, audit.audited);
        if (!audit.audited) std::fill(line.cells.begin() + first, line.cells.end(), "-");
    }
    return table_of(lines);
}

Table outcome_table(const TrialResult& trial) {
    const TrialSettings& settings = trial.settings;
    std::vector<Line> lines;
    for (const OutcomeTimes& times : trial.load.outcomes) {
        Line& line = lines.emplace_back();
        line.add("call", fmt::format("{} {}", to_string(times.kind), to_string(times.outcome)));
        line.add("count", grouped(static_cast<double>(times.ns.count())));
        for (const auto& [name, quantile] : {std::pair{"p50", 0.5}, std::pair{"p99", 0.99}}) {
            const double time = in_us(times.ns.value_at(quantile)) * time_unit(settings).per_us;
            line.add(fmt::format("{}_{}", name, time_unit(settings).name),
                     can_tell(times.ns.count(), quantile) ? three_digits(time) : "-");
        }
        line.add(fmt::format("max_{}", time_unit(settings).name),
                 three_digits(in_us(times.ns.max()) * time_unit(settings).per_us));
    }
    return table_of(lines);
}

std::string time_text(const TrialSettings& settings, std::int64_t ns) {
    const TimeUnit unit = time_unit(settings);
    constexpr std::int64_t kLong = 10'000'000;  // 5,000,000 us are 5,000 ms to people.
    if (ns >= kLong) return fmt::format("{} ms", three_digits(in_us(ns) * 1e-3));
    return fmt::format("{} {}", three_digits(in_us(ns) * unit.per_us), unit.name);
}

// -- medians and percentiles -----------------------------------------------------------------------

Spread spread_of(std::span<const double> values) {
    if (values.empty()) return {};
    std::vector<double> sorted(values.begin(), values.end());
    std::sort(sorted.begin(), sorted.end());
    const std::size_t middle = sorted.size() / 2;
    const double median =
        sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
    return {median, sorted.front(), sorted.back()};
}

double median(std::span<const double> values) { return spread_of(values).median; }

std::uint64_t least_values(double quantile) {
    // 1 - 0.9999 is a little less than 0.0001.
    constexpr double kRounding = 1e-7;
    return static_cast<std::uint64_t>(std::ceil((1 - kRounding) / (1 - quantile)));
}

bool can_tell(std::uint64_t values, double quantile) {
    return quantile >= 1 || values >= least_values(quantile);
}

std::vector<double> paired_ratios(std::span<const double> values,
                                  std::span<const double> baselines) {
    std::vector<double> ratios;
    const std::size_t pairs = std::min(values.size(), baselines.size());
    ratios.reserve(pairs);
    for (std::size_t round = 0; round < pairs; ++round) {
        if (baselines[round] > 0) ratios.push_back(values[round] / baselines[round]);
    }
    return ratios;
}

Table::Table(std::vector<std::string> header) { rows_.push_back(std::move(header)); }

void Table::add(std::vector<std::string> row) {
    assert(row.size() == rows_[0].size());
    rows_.push_back(std::move(row));
}

std::string Table::str() const {
    std::vector<std::size_t> widths(rows_[0].size(), 0);
    for (const auto& row : rows_) {
        for (std::size_t column = 0; column < row.size(); ++column) {
            widths[column] = std::max(widths[column], row[column].size());
        }
    }
    std::string text;
    for (const auto& row : rows_) {
        std::string line = fmt::format("{:<{}}", row[0], widths[0]);
        for (std::size_t column = 1; column < row.size(); ++column) {
            line += fmt::format("  {:>{}}", row[column], widths[column]);
        }
        line.erase(line.find_last_not_of(' ') + 1);
        text += line + '\n';
    }
    return text;
}

std::string grouped(double value) {
    const std::string digits = fmt::format("{}", std::llround(std::abs(value)));
    std::string text;
    for (std::size_t at = 0; at < digits.size(); ++at) {
        if (at > 0 && (digits.size() - at) % 3 == 0) text += ',';
        text += digits[at];
    }
    return value <= -0.5 ? fmt::format("-{}", text) : text;
}

std::string three_digits(double value) {
    const double size = std::abs(value);
    if (size == 0) return "0";
    const auto magnitude_of = [](double number) {
        return static_cast<int>(std::floor(std::log10(number)));
    };
    const double step = std::pow(10, magnitude_of(size) - 2);
    const double rounded = std::round(value / step) * step;
    // Rounding may carry into another digit: 0.9996 is 1.00. The margin is for its last bit.
    const int magnitude = magnitude_of(std::abs(rounded) * (1 + 1e-12));
    if (magnitude >= 2) return grouped(rounded);
    return fmt::format("{:.{}f}", rounded, std::min(2 - magnitude, 9));
}

}  // namespace hotcount::loadtest
