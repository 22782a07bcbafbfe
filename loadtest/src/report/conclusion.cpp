// The conclusion of a trial: whether it passed, and the reasons if it did not.
#include <fmt/core.h>

#include <cmath>
#include <optional>

#include "compare.hpp"
#include "load/words.hpp"

namespace hotcount::loadtest {
namespace {

/// As many calls had no success that the percentile is one of theirs, which the histogram has as
/// slower than --timeout: no limit above is met by them.
bool is_of_no_success(const TrialResult& trial, const Threshold& threshold) {
    if (threshold.of_staleness() || threshold.bound.starts_with('>')) return false;
    const Tally& tally = trial.load.tally;
    const auto bad = static_cast<double>(tally.failed + tally.unknown + trial.load.censored);
    return bad > 0 && bad > (1 - threshold.quantile()) * static_cast<double>(trial.times().count());
}

/// A percentile of latency or staleness.
void check_time(const TrialResult& trial, Checked& checked) {
    const Threshold& threshold = checked.threshold;
    const bool stale = threshold.of_staleness();
    const Histogram& times = stale ? trial.audit.staleness_ns : trial.times();
    // A number that was right at no moment has been wrong for longer than any time.
    const std::uint64_t never = stale ? trial.audit.reads_never_right : 0;
    const std::uint64_t count = times.count() + never;
    checked.unit = "ms";
    checked.too_few = count == 0 || !can_tell(count, threshold.quantile());
    if (checked.too_few) {
        checked.figure =
            fmt::format("it needs {} {}, and there were {}",
                        whole(threshold.quantile() < 1 ? least_values(threshold.quantile()) : 1),
                        stale ? "reads whose count could be checked" : "calls", whole(count));
        return;
    }
    const double rank = std::ceil(threshold.quantile() * static_cast<double>(count));
    if (rank > static_cast<double>(times.count())) {
        checked.figure =
            fmt::format("{} of {} reads were right at no moment", whole(never), whole(count));
        return;
    }
    if (is_of_no_success(trial, threshold)) {
        checked.figure = "a call without a success";
        return;
    }
    const std::int64_t ns = times.value_at(never == 0 ? threshold.quantile()
                                                      : rank / static_cast<double>(times.count()));
    checked.found = static_cast<double>(ns) * 1e-6;
    checked.figure = three_digits(*checked.found) + " ms";
    checked.met = threshold.is_met_by(static_cast<double>(ns));
}

void check_number(const TrialResult& trial, Checked& checked) {
    const std::string& name = checked.threshold.figure;
    const Tally& tally = trial.load.tally;
    const AuditResult& audit = trial.audit;
    if (name == "err") {
        const auto due = static_cast<double>(tally.answered() + trial.load.censored);
        const auto bad = static_cast<double>(tally.failed + tally.unknown + trial.load.censored);
        checked.unit = "share";
        checked.too_few = due == 0;
        checked.found = due > 0 ? bad / due : 0;
        checked.figure =
            due > 0 ? fmt::format("{:.3g} %", 100 * *checked.found) : "there were no calls";
    } else if (name == "rate") {
        checked.unit = "per_s";
        checked.found = trial.load.per_second(tally.ok());
        checked.figure = three_digits(*checked.found) + "/s";
    } else {
        checked.unit = "count";
        checked.found = static_cast<double>(name == "lost"     ? audit.lost()
                                            : name == "double" ? audit.doubled()
                                                               : audit.ghost());
        checked.figure = grouped(*checked.found);
    }
    checked.met = !checked.too_few && checked.threshold.is_met_by(*checked.found);
}

/// Compares an audited trial with its thresholds. Returns a reason for each one that is missed, and
/// adds one to `unknown` for each that the load was too short for.
std::vector<std::string> check_thresholds(TrialResult& trial, std::vector<std::string>& unknown) {
    std::vector<std::string> missed;
    trial.checked.clear();
    for (const Threshold& threshold : trial.settings.thresholds) {
        Checked& checked = trial.checked.emplace_back();
        checked.threshold = threshold;
        if (threshold.quantile() > 0) {
            check_time(trial, checked);
        } else {
            check_number(trial, checked);
        }
        const std::string why = fmt::format("threshold {}: {}", threshold.text, checked.figure);
        if (checked.too_few) {
            unknown.push_back(why + "; a longer --duration has more");
        } else if (!checked.met) {
            missed.push_back(why);
        }
    }
    return missed;
}

}  // namespace

std::string limit_of(const TrialResult& trial) {
    if (trial.near_ceiling()) {
        return fmt::format(
            "the load generator, which drives {:.2g} times this rate at most: the figure may be "
            "its own",
            trial.headroom());
    }
    const TrialSettings& settings = trial.settings;
    switch (trial.load.bound) {
        case LoadBound::schedule:
            return "the schedule, which was kept";
        case LoadBound::workers:
            return fmt::format(
                "the {} workers, all of which waited for answers: more (-w) may do more",
                settings.workers);
        case LoadBound::in_flight:
            return fmt::format(
                "the {} calls in flight, all of which waited for answers: more (--in-flight) may "
                "do more",
                settings.in_flight);
        case LoadBound::planner:
        case LoadBound::generator:
            return "the load generator, whose workers spent more time outside of calls than in "
                   "them";
        case LoadBound::system:
            break;
    }
    return "the system under test: of its answers, half took twice as long as the fastest or "
           "longer";
}

std::string_view to_string(Conclusion conclusion) {
    return word_of(conclusion, {"passed", "inconclusive", "missed", "broken"});
}

int exit_code(Conclusion conclusion) {
    if (conclusion == Conclusion::passed) return 0;
    return conclusion == Conclusion::inconclusive ? 3 : 1;
}

std::string_view TrialResult::verdict() const {
    if (overloaded()) return "overloaded";
    return conclusion == Conclusion::passed ? audit.word() : to_string(conclusion);
}

std::string_view Summary::verdict() const {
    if (not_run()) return "not run";
    if (overloaded && conclusion == Conclusion::inconclusive) return "overloaded";
    return conclusion == Conclusion::passed ? audit.word() : to_string(conclusion);
}

double TrialResult::headroom() const {
    const double per_s = settings.arrival == Arrival::closed
                             ? load.per_second(load.tally.answered())
                             : settings.rate_per_s;
    return per_s > 0 ? ceiling_per_s / per_s : 0;
}

bool TrialResult::overloaded() const {
    return conclusion == Conclusion::inconclusive && reasons.size() == 1 &&
           reasons[0].starts_with("overloaded");
}

bool nothing_to_audit(const TrialSettings& settings, const AuditResult& audit) {
    return audit.acknowledged == 0 && audit.passed() && settings.traffic.mix.vote > 0;
}

void conclude(TrialResult& trial) {
    const LoadResult& load = trial.load;
    const Tally& tally = load.tally;
    std::vector<std::string>& reasons = trial.reasons;
    trial.conclusion = Conclusion::passed;
    reasons.clear();
    if (load.error) reasons.push_back("the load stopped: " + load.error->message);
    if (load.interrupted) reasons.emplace_back("it was interrupted");
    // Lateness from a fault made on purpose is no overload: recoveries and percentiles show it.
    const bool overloaded = trial.settings.arrival != Arrival::closed && !load.offered.carried() &&
                            !trial.settings.disturbed();
    // A strategy that is so late that it still serves the warm-up is overloaded, no more than that.
    if (tally.ok() == 0 && (!overloaded || tally.answered() > 0)) {
        reasons.emplace_back("nothing was acknowledged in the window");
    }
    if (overloaded) {
        reasons.push_back(
            fmt::format("overloaded: {:.1f} % of the schedule was offered, the "
                        "backlog {}; the rate was limited by {}",
                        100 * load.offered.share, load.offered.growing ? "grew" : "stayed flat",
                        limit_of(trial)));
    }
    const auto answered = static_cast<double>(tally.answered());
    const std::uint64_t errors = tally.failed + tally.unknown;
    if (static_cast<double>(errors) > trial.settings.max_errors * answered) {
        reasons.push_back(fmt::format(
            "errors: {} of {} calls in the window failed or had no answer, {:.3g} %; --max-errors "
            "allows {:.3g} %",
            errors, tally.answered(), 100 * static_cast<double>(errors) / answered,
            100 * trial.settings.max_errors));
    }
    reasons.insert(reasons.end(), trial.problems.begin(), trial.problems.end());
    std::vector<std::string> missed;
    if (trial.audited && !load.interrupted) missed = check_thresholds(trial, reasons);
    if (trial.audited && tally.ok() > 0 && nothing_to_audit(trial.settings, trial.audit)) {
        reasons.emplace_back(kNothingToAudit);
    }
    if (!reasons.empty()) trial.conclusion = Conclusion::inconclusive;
    if (!missed.empty()) trial.conclusion = Conclusion::missed;
    reasons.insert(reasons.begin(), missed.begin(), missed.end());
    if (trial.audited && !trial.audit.passed()) {
        trial.conclusion = Conclusion::broken;
        reasons.insert(reasons.begin(), trial.audit.findings());
    }
}

}  // namespace hotcount::loadtest
