// Strategies side by side: the same traffic, in alternating rounds, each on a fresh database.
//
// A round is a block: every contender runs once in it, in an order drawn from the seed, and the round
// after it has that order backwards, so that a machine that warms up or slows down does not favour
// the first contender. Ratios are taken within a round. The baseline runs a second time as a
// control: a difference between the two is noise. If the baseline is faster with fewer callers, it
// also runs with that number.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <hotcount/result.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "load/histogram.hpp"
#include "load/settings.hpp"
#include "numbers.hpp"
#include "progress.hpp"
#include "trial.hpp"

namespace hotcount::loadtest {

/// The reason for which a contender runs in a comparison.
enum class Role : std::uint8_t {
    named,    ///< By the user.
    control,  ///< The baseline once more.
    best,     ///< The baseline with the number of callers that suits it best.
};
std::string_view to_string(Role role);

struct Contender {
    std::string name{};  ///< Of its row and its folders: naive, naive/again, naive@4.
    std::string strategy{};
    std::uint32_t workers{0};
    Role role{Role::named};
};

/// One table: several strategies under one load.
struct Part {
    std::string name{};        ///< For folders and labels: "closed", "open", "counters".
    std::string database{};    ///< Of several, the one that it is on: "postgres".
    TrialSettings settings{};  ///< But for the strategy.
    std::vector<std::string> strategies{};
    std::string baseline{};
    std::uint32_t rounds{5};
    bool control{true};
    /// How much slower the control is made on purpose: 0.05 is 5 %. 0: it is not.
    double control_slower{0};
    bool find_best{true};  ///< Look for the baseline's best number of callers, in a closed loop.
};

/// All rounds of one strategy. columns.cpp computes from them what a report shows.
struct Summary {
    std::string strategy{};  ///< The contender's name.
    Role role{Role::named};
    std::vector<TrialResult> trials{};  ///< By round.

    Spread writes_per_s{};  ///< Acknowledged votes and un-votes.
    Spread reads_per_s{};
    Spread ratio{};  ///< writes_per_s against the baseline's; of reads if nothing is written.
    Spread ratio_to_best{};    ///< `ratio` against the baseline with its best number of callers.
    Spread p99_ratio{};        ///< Open loop: p99 of the response against the baseline's.
    std::int64_t floor_ns{0};  ///< Of the timers: timer_floor_ns().
    Histogram response_ns{};
    Histogram service_ns{};
    Histogram bystander_ns{};
    AuditResult audit{};
    std::uint64_t audited{0};  ///< How many of the trials were.
    Conclusion conclusion{Conclusion::passed};
    std::vector<std::string> reasons{};
    bool overloaded{false};

    /// The comparison ended before its first round: nothing is known of it.
    bool not_run() const { return trials.empty(); }
    /// As TrialResult has it; or not run.
    std::string_view verdict() const;
};

/// The baseline's result with one number of callers, in a short trial.
struct CallersTried {
    std::uint32_t callers{0};
    double per_s{0};
};

struct PartResult {
    Part part{};
    std::vector<Summary> summaries{};  ///< As the strategies were named; then control and best.
    std::vector<CallersTried> tried{};
    std::vector<std::string> notes{};  ///< Disturbances of the machine and the like, one a line.
    Conclusion conclusion{Conclusion::passed};

    const Summary* with_role(Role role) const;  ///< Null: there is none.
    bool not_run() const;                       ///< No contender was.
    /// Whether the baseline with its best number of callers, which short tries found, made more in
    /// the rounds than with all callers.
    bool best_is_faster() const;
    /// How many rounds all contenders have: fewer than asked for if the comparison ended before.
    std::size_t whole_rounds() const;
    std::size_t tests() const;  ///< Of how many contenders a difference is tested.
};

struct TrialContext;

struct Comparison {
    std::vector<std::string> notes{};  ///< Omissions, with their reasons.
    std::string next{};                ///< A suggestion of the next step, for people.
    std::vector<PartResult> parts{};
    std::string started{};
    Conclusion conclusion{Conclusion::passed};
};

/// The parts that `compare` with these settings has.
std::vector<Part> compare_parts(const Settings& settings);
/// The canonical comparison: votes on SQLite for one item and for many, counters in memory; if the
/// settings have a Redis, counters, limiters and sorted sets on it as well.
std::vector<Part> canonical_parts(const Settings& settings);

/// Which contender comes first, second, ... in a round: drawn from the seed, and in every other round
/// backwards what it was in the one before.
std::vector<std::size_t> order_of_round(std::uint64_t seed, std::uint32_t round,
                                        std::size_t contenders);

/// How many callers the baseline is tried with: 1, 2, 4 ... and all.
std::vector<std::uint32_t> callers_to_try(std::uint32_t workers);
/// The number of callers that made most; none if all of them made as much, to within 10 %.
std::optional<std::uint32_t> best_callers(const std::vector<CallersTried>& tried,
                                          std::uint32_t workers);

/// Operations per second that the comparison is about: writes, or reads if nothing is written.
double throughput(const TrialResult& trial);

/// Works out the figures of the trials gathered, and the part's conclusion: a strategy that could
/// not keep up is a finding, not a failure, as long as another one could.
void summarise(PartResult& result);

/// Runs all parts, each trial on tables of its own. An error only if nothing was measured: a trial
/// that cannot be run later ends the comparison, which is then inconclusive and has what was measured
/// before.
/// `on_part` is told of each part as soon as it has run.
Result<Comparison> run_comparison(const std::vector<Part>& parts, const TrialContext& context,
                                  const std::function<void(const PartResult&)>& on_part = {});

// -- trials one after another (trial.cpp) ---------------------------------------------------------
//
// Trials one after another, each in a folder of its own and on tables of its own.
//
// So no trial meets what another one left: what `compare` and `run --each` run.
// Used from one thread.

/// The state that all trials of a command share. It outlives them.
struct TrialContext {
    const std::filesystem::path& folder;  ///< The trials' folders are below it.
    bool keep;                            ///< The trials' folders stay.
    const nlohmann::json& provenance;     ///< As run_trial() takes it.
    const std::atomic<bool>& interrupt;
    Managed* redis;                           ///< As TrialHooks have it.
    std::optional<GeneratorCeiling> ceiling;  ///< The same.
    Progress& progress;
    std::vector<Managed*> databases{};  ///< The same.

    /// They refer to this.
    TrialHooks hooks() const;
};

class FreshTrials {
  public:
    explicit FreshTrials(const TrialContext& context) : context_(context) {}

    /// `name` is that of the trial's folder, with - for what a file name should not have. With a database URL of SQLite it makes
    /// a file beside that: votes.db becomes votes-closed-01-naive.db. `label` is for progress. Errors
    /// are those of run_trial().
    /// `keep`: as the context says; otherwise the folder goes in any case.
    Result<TrialResult> run(TrialSettings settings, std::string name, const std::string& label,
                            bool keep = true);

    bool interrupted() const { return context_.interrupt; }

  private:
    TrialContext context_;
};

}  // namespace hotcount::loadtest
