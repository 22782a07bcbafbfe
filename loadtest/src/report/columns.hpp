// The columns of every report, in two lists: the figures of a load, and the findings of its audit. Both
// are in columns.cpp.
//
// A column says where it stands in the JSON documents, how it is computed from one trial and from
// all rounds of a strategy, its unit, and in which tables for people it stands. figures.cpp makes
// the JSON and the tables from the list, so a new column is a new entry of the list and nothing
// else.
//
// The lists never change; they may be read from any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "compare.hpp"
#include "trial.hpp"

namespace hotcount::loadtest {

// The tables for people, as bits.
inline constexpr unsigned kRunClosed = 1;
inline constexpr unsigned kRunOpen = 2;
inline constexpr unsigned kCompareClosed = 4;
inline constexpr unsigned kCompareOpen = 8;
inline constexpr unsigned kRun = kRunClosed | kRunOpen;
inline constexpr unsigned kRunAudit = 16;
inline constexpr unsigned kFolderAudit = 32;
inline constexpr unsigned kCompare = kCompareClosed | kCompareOpen;

/// How a value looks in a table. In JSON the end of its name is its unit: _s, _us, _per_s.
enum class Format : std::uint8_t {
    whole,    ///< 1,234
    decimal,  ///< 0.0123, 1.23, 12,300; for 0: -
    ratio,    ///< 0.0123, 1.23
    range,    ///< Their least and their most: 1.2 .. 3.4.
    percent,  ///< 99.9 %, of a share from 0 to 1
    time,     ///< Microseconds, shown in the table's own unit.
    yes_no,
    words,
};

/// Where a value stands in a JSON document, its members joined by /, and how it is computed. A value
/// of null is left out, and so is its cell.
template <class From>
struct Source {
    std::string path{};  ///< Empty: in no document.
    std::function<nlohmann::json(const From&)> value{};
};

struct ReportColumn {
    Source<TrialResult> trial{};
    Source<Summary> summary{};
    /// In tables. {writes}: votes, adds, hits ...; {unit}: ms or us; {baseline}, {best}: the names of
    /// the baseline, and of the baseline with its best number of callers.
    const char* header{""};
    Format format{Format::whole};
    unsigned tables{0};
    bool (*shown)(const PartResult&){nullptr};  ///< In a comparison: whether it says anything.
    bool (*shown_in_run)(const TrialSettings&){nullptr};  ///< As `shown`, for a run.
    bool begins_with_sleep{false};  ///< Not known any better than timers are: timer_floor_ns().
    double quantile{0};             ///< Of a percentile of these times; else they are null.
    Histogram LoadResult::*trial_times{nullptr};
    Histogram Summary::*summary_times{nullptr};
};

struct AuditColumn {
    std::string path{};
    std::function<nlohmann::json(const AuditResult&)> value{};
    const char* header{""};
    Format format{Format::whole};
    unsigned tables{0};
    std::vector<WorkloadKind> workloads{};  ///< Workloads whose tables have it; empty: all.
    bool finding{true};                     ///< Says something only if the audit came to an end.
};

/// In the order in which the tables have them.
const std::vector<ReportColumn>& report_columns();
const std::vector<AuditColumn>& audit_columns();

}  // namespace hotcount::loadtest
