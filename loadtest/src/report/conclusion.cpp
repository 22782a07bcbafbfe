// The conclusion of a trial: whether it passed, and the reasons if it did not.
#include <fmt/core.h>

#include "load/words.hpp"
#include "trial.hpp"

namespace hotcount::loadtest {
namespace {

std::string describe_bound(const TrialResult& trial) {
    if (trial.near_ceiling()) {
        return fmt::format("the generator, whose ceiling is {:.2g} times what was asked for",
                           trial.headroom());
    }
    const LoadBound bound = trial.load.bound;
    const TrialSettings& settings = trial.settings;
    switch (bound) {
        case LoadBound::schedule:
            return "the schedule, which was kept";
        case LoadBound::workers:
            return fmt::format("the workers, all {} of which waited for answers", settings.workers);
        case LoadBound::in_flight:
            return "the calls in flight, all of which waited for answers";
        case LoadBound::planner:
            return "the planner: the workers waited for operations to be planned";
        case LoadBound::generator:
            return "the generator: its workers spent more time outside of calls than in them";
        case LoadBound::system:
            break;
    }
    return "the system: with all workers waiting, half of its answers took twice as long as the "
           "fastest one or longer";
}

}  // namespace

std::string_view to_string(Conclusion conclusion) {
    return word_of(conclusion, {"passed", "broken", "bad usage", "inconclusive"});
}

Conclusion worse_of(Conclusion one, Conclusion other) {
    return other == Conclusion::broken || one == Conclusion::passed ? other : one;
}

std::string_view TrialResult::audit_word() const { return audited ? audit.word() : "impossible"; }

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

void conclude(TrialResult& trial) {
    const LoadResult& load = trial.load;
    const Tally& tally = load.tally;
    std::vector<std::string>& reasons = trial.reasons;
    trial.conclusion = Conclusion::passed;
    reasons.clear();
    if (load.error) reasons.push_back("the load stopped: " + load.error->message);
    if (load.interrupted) reasons.emplace_back("it was interrupted");
    const bool overloaded = trial.settings.arrival != Arrival::closed && !load.offered.carried();
    // A strategy that is so late that it still serves the warm-up is overloaded, no more than that.
    if (tally.ok() == 0 && (!overloaded || tally.answered() > 0)) {
        reasons.emplace_back("nothing was acknowledged in the window");
    }
    if (overloaded) {
        reasons.push_back(
            fmt::format("overloaded: {:.1f} % of the schedule was offered, the "
                        "backlog {}; the rate was bound by {}",
                        100 * load.offered.share, load.offered.growing ? "grew" : "stayed flat",
                        describe_bound(trial)));
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
    if (!reasons.empty()) trial.conclusion = Conclusion::inconclusive;
    if (trial.audited && !trial.audit.passed()) {
        trial.conclusion = Conclusion::broken;
        reasons.insert(reasons.begin(), trial.audit.findings());
    }
}

}  // namespace hotcount::loadtest
