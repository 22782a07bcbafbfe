// One strategy, one run: set up, load, settle, audit, conclude.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <hotcount/result.hpp>
#include <hotcount/votes.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "checkers/checker.hpp"
#include "load/ledger.hpp"
#include "load/runner.hpp"
#include "load/settings.hpp"
#include "machine.hpp"
#include "numbers.hpp"
#include "targets/beside_load.hpp"
#include "targets/managed_server.hpp"
#include "targets/target.hpp"

namespace hotcount::loadtest {

struct Summary;

// -- how long a load took to be as fast as before, after --fault had taken a server away
// (recovery.cpp)

/// The effect of one fault on the callers. Times count from when a server took the writes again:
/// the one that was away, or the one that replaced it.
struct Recovery {
    Outage outage{};
    Duration from{0};        ///< When the server went away, in the times of the ledger.
    Duration served{0};      ///< When one took the writes again, in the times of the ledger.
    double before_per_s{0};  ///< Successful calls between the last fault and this one.
    /// Until the first call succeeded on an item that could not be written meanwhile.
    std::optional<Duration> first_ok{};
    /// Until the rate was kRecovered of the one before, over 0.1 s or more. Empty: not by the end
    /// of the load or the next fault, or too few calls succeeded before.
    std::optional<Duration> recovered{};
    // Of the calls that were sent from the fault on, up to the next one or the end.
    std::uint64_t failed{0};
    std::uint64_t unknown{0};
    /// Acknowledged writes that the server which went away need not have copied to the one that
    /// replaced it. Empty if no server replaced it.
    MayLose may_lose{};
};

inline constexpr double kRecovered = 0.9;

/// Of each fault of a load.
std::vector<Recovery> recoveries(const Ledger& ledger, const std::vector<Outage>& outages,
                                 const TrialSettings& settings);

/// Of all faults together.
MayLose may_lose(const std::vector<Recovery>& recoveries);

/// A list for JSON.
nlohmann::json describe(const std::vector<Recovery>& recoveries);
/// Two lines for each fault, and one for the writes that they may have lost.
std::string recovery_lines(const std::vector<Recovery>& recoveries, const AuditResult& audit);
/// The recovery lines for all rounds of a strategy.
std::string recovery_lines(const Summary& summary);

// -- the trial ------------------------------------------------------------------------------------

/// In JSON and in reports these are the words; in the order of how much they matter.
enum class Conclusion : std::uint8_t {
    passed,
    inconclusive,  ///< The machine or the generator could not carry the test.
    missed,        ///< A threshold of the user's was not met.
    broken,        ///< The audit found a broken contract.
};
std::string_view to_string(Conclusion conclusion);
/// 0 passed, 1 a check failed (missed, broken), 3 inconclusive.
int exit_code(Conclusion conclusion);
inline Conclusion worse_of(Conclusion one, Conclusion other) { return std::max(one, other); }

/// One threshold and the figure that was held to it.
struct Checked {
    Threshold threshold{};
    /// In its unit: ms, per_s, share or count. Empty: there is none, for the reason in `figure`.
    std::optional<double> found{};
    std::string_view unit{};
    std::string figure{};  ///< For people: 12.3 ms, 0.2 %.
    bool met{false};
    bool too_few{false};  ///< Too few calls or reads for such a percentile: it says nothing.
};

/// As run.json says it.
enum class RunState : std::uint8_t {
    running,   ///< The load; or the program was killed in it.
    measured,  ///< The load ended and its figures are kept; the audit did not come to an end.
    finished,
};

struct TrialResult {
    TrialSettings settings{};
    RunState state{RunState::running};
    std::string started{};  ///< UTC.
    Contract contract{};
    std::string place{};
    LoadResult load{};
    AuditResult audit{};
    bool audited{false};
    /// Errors after the load: of the audit, and of keeping or removing data.
    std::vector<std::string> problems{};
    TargetStats stats{};      ///< Of the load, its warm-up included.
    std::uint64_t kills{0};   ///< Processes of callers that were killed in the load, ...
    std::uint64_t stalls{0};  ///< ... and how often one was stopped.
    Builds builds{};
    MachineWatch machine{};              ///< Before and after the load.
    std::vector<Recovery> recoveries{};  ///< Of what --fault or --outage did to private servers.
    ServerWork server{};  ///< From the load's start until no count was put off any more.
    /// The generator's highest rate in such a loop; 0: not known.
    double ceiling_per_s{0};
    double set_up_s{0};
    double audit_s{0};
    Conclusion conclusion{Conclusion::passed};
    std::vector<std::string> reasons{};  ///< Why it is not `passed`.
    std::vector<Checked> checked{};      ///< The thresholds, once the audit has come to an end.

    /// The one word of the trial: passed; allowed, where a contract allows what the audit found;
    /// overloaded; or that of its conclusion.
    std::string_view verdict() const;
    /// Latency as its tables and thresholds have it: in an open loop from when a call was due.
    const Histogram& times() const {
        return settings.arrival == Arrival::closed ? load.service_ns : load.response_ns;
    }
    /// The generator's ceiling divided by the rate of answers, or by the intended rate in the open
    /// loop. 0: not known.
    double headroom() const;
    /// The generator is so near to its ceiling that it may be what was measured.
    bool near_ceiling() const {
        return headroom() > 0 && headroom() < GeneratorCeiling::kLeastHeadroom;
    }
    /// The only thing wrong is that the strategy did not keep up with the schedule.
    bool overloaded() const;
};

/// The bottleneck that limited the rate, for people.
std::string limit_of(const TrialResult& trial);

/// The load was to write, and the audit has no acknowledged write to look for: it proves nothing.
bool nothing_to_audit(const TrialSettings& settings, const AuditResult& audit);
inline constexpr std::string_view kNothingToAudit =
    "no write was acknowledged, so the audit proves nothing";

/// Works out the conclusion and its reasons from the beginning, as more becomes known.
void conclude(TrialResult& trial);

/// Callbacks and servers of a trial; all but `interrupt` may be empty.
struct TrialHooks {
    const std::atomic<bool>& interrupt;
    std::function<void()> on_load{};  ///< Set up; the load begins.
    LoadObserver observe{};
    /// Puts another driver before the target's own. For tests of the audit.
    std::function<std::unique_ptr<Driver>(Driver&)> wrap{};
    /// The Redis of --managed redis; null: none was started. It outlives the trial.
    Managed* redis{nullptr};
    /// Empty: this machine is not calibrated.
    std::optional<GeneratorCeiling> ceiling{};
    /// Private database servers; settings name the one that a trial is on by its URL.
    std::vector<Managed*> databases{};
};

/// Runs in `folder`, which exists. `provenance` (command, versions, machine) goes into run.json,
/// which is written before the first operation is sent, with the figures when the load has ended,
/// and with the verdict after the audit. An error only if nothing was measured: whatever fails
/// later is one of the problems of an inconclusive result.
Result<TrialResult> run_trial(const TrialSettings& settings, const std::filesystem::path& folder,
                              const nlohmann::json& provenance, const TrialHooks& hooks);

/// Audits the stored state and the answers to callers.
Result<AuditResult> audit_all(Target& target, const Ledger& ledger);

bool on_redis(const TrialSettings& settings);

/// A run folder audited again, whatever became of its run.
struct FolderAudit {
    std::filesystem::path folder{};
    TrialSettings settings{};
    std::string state{};  ///< "running" if the run died before it wrote its results.
    bool audited{true};   ///< False: nothing was compared with anything; `reasons` say why.
    Contract contract{};
    AuditResult result{};
    Conclusion conclusion{Conclusion::passed};
    std::vector<std::string> reasons{};
};
/// The URLs are for what the run left on a server; empty: as in run.json, where a password is not
/// written down.
Result<FolderAudit> audit_folder(const std::filesystem::path& folder,
                                 const std::string& redis_url = {},
                                 const std::string& database_url = {});

/// The reason why a run of these settings cannot be audited again after this program has ended;
/// empty if it can be. Its figures, its verdict and its ledger are in its folder in either case.
std::optional<std::string> why_not_again(const TrialSettings& settings, const Strategy& strategy);

/// The reason for a user's own program, from the contract that it gave, as in run.json.
std::optional<std::string> why_driver_not_again(const nlohmann::json& run);

/// A folder that audit_folder() failed for: what it says of its run, and why.
FolderAudit not_audited(const std::filesystem::path& folder, const Error& why);

/// The run folders at or right below `folder`, in order of their names.
std::vector<std::filesystem::path> run_folders(const std::filesystem::path& folder);

// -- what a run did interval by interval (run_series.cpp) -----------------------------------------
//
// The figures of each interval of a run, from its ledger alone.
//
//   series.csv     one row an interval: answers by kind and outcome, latency, the backlog
//   response.hlog  latencies of the answers of each interval, by kind and outcome,
//                  a log of version 1.3 as HdrHistogram's tools read it

inline constexpr const char* kSeriesFile = "series.csv";
inline constexpr const char* kResponseFile = "response.hlog";

/// A second, or longer if the run would have more of them than this. The first ends with the
/// warm-up, or whole intervals before it.
inline constexpr std::size_t kMostIntervals = 600;

/// Writes both files of a run that has just ended, on this machine. Latency counts from the time
/// that a call was due; in the closed loop, from the time it was sent. An answer belongs to the
/// interval in which it came; a call without one, to that in which it was sent.
Result<void> write_series(const Ledger& ledger, const TrialSettings& settings,
                          const std::filesystem::path& folder);

}  // namespace hotcount::loadtest
