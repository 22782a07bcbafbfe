// Summaries of the rounds of a comparison: medians with the least and the most.
#include <algorithm>
#include <utility>

#include "compare.hpp"

#include "load/words.hpp"

namespace hotcount::loadtest {
namespace {

template <class Figure>
std::vector<double> by_round(const Summary& summary, const Figure& figure) {
    std::vector<double> values;
    for (const TrialResult& trial : summary.trials) values.push_back(figure(trial));
    return values;
}

double writes(const TrialResult& trial) {
    return trial.load.per_second(trial.load.tally.writes_ok());
}
double reads(const TrialResult& trial) { return trial.load.per_second(trial.load.tally.reads_ok); }

void add_reasons(Summary& summary, const TrialResult& trial) {
    for (const std::string& reason : trial.reasons) {
        if (std::find(summary.reasons.begin(), summary.reasons.end(), reason) ==
            summary.reasons.end()) {
            summary.reasons.push_back(reason);
        }
    }
}

void summarise_contender(Summary& summary) {
    if (summary.not_run()) {
        summary.conclusion = Conclusion::inconclusive;
        if (summary.reasons.empty()) summary.reasons.emplace_back("not run: it ended before");
        return;
    }
    std::vector<MachineWatch> watches;
    for (const TrialResult& trial : summary.trials) {
        const LoadResult& load = trial.load;
        summary.response_ns.merge(load.response_ns);
        summary.service_ns.merge(load.service_ns);
        summary.bystander_ns.merge(load.bystander_ns);
        summary.audit.add(trial.audit);
        if (trial.audited) ++summary.audited;
        summary.overloaded = summary.overloaded || trial.overloaded();
        add_reasons(summary, trial);
        watches.push_back(trial.machine);
        summary.conclusion = worse_of(summary.conclusion, trial.conclusion);
    }
    summary.writes_per_s = spread_of(by_round(summary, writes));
    summary.reads_per_s = spread_of(by_round(summary, reads));
    summary.floor_ns = timer_floor_ns(watches);
}

/// Holds every contender against one of them, round by round, by `figure`, into `member`.
template <class Figure>
void compare_with(PartResult& result, const Summary* base, const Figure& figure,
                  Spread Summary::*member) {
    if (base == nullptr) return;
    const std::vector<double> to = by_round(*base, figure);
    for (Summary& summary : result.summaries) {
        summary.*member = spread_of(paired_ratios(by_round(summary, figure), to));
    }
}

double response_p99(const TrialResult& trial) {
    return static_cast<double>(trial.load.response_ns.value_at(0.99));
}

std::vector<std::string> disturbances_of(const PartResult& result) {
    std::vector<MachineWatch> watches;
    std::vector<std::size_t> rounds;
    for (const Summary& summary : result.summaries) {
        for (std::size_t round = 0; round < summary.trials.size(); ++round) {
            watches.push_back(summary.trials[round].machine);
            rounds.push_back(round + 1);
        }
    }
    return disturbances(watches, rounds);
}

Conclusion conclude(const PartResult& result) {
    bool any_carried = false;
    bool any_other = false;
    if (result.conclusion == Conclusion::broken) return Conclusion::broken;
    for (const Summary& summary : result.summaries) {
        if (summary.conclusion == Conclusion::broken) return Conclusion::broken;
        // A control that did not come to run leaves what the user asked for as it is.
        if (summary.role != Role::named) continue;
        if (summary.conclusion == Conclusion::passed) any_carried = true;
        if (summary.conclusion == Conclusion::inconclusive && !summary.overloaded) any_other = true;
    }
    return any_carried && !any_other ? Conclusion::passed : Conclusion::inconclusive;
}

}  // namespace

std::string_view to_string(Role role) { return word_of(role, {"named", "control", "best"}); }

double throughput(const TrialResult& trial) {
    return trial.settings.traffic.mix.vote > 0 ? writes(trial) : reads(trial);
}

const Summary* PartResult::with_role(Role role) const {
    const auto found = std::find_if(summaries.begin(), summaries.end(),
                                    [&](const Summary& summary) { return summary.role == role; });
    return found == summaries.end() ? nullptr : &*found;
}

bool PartResult::not_run() const {
    return std::all_of(summaries.begin(), summaries.end(),
                       [](const Summary& summary) { return summary.not_run(); });
}

bool PartResult::best_is_faster() const {
    const Summary* const best = with_role(Role::best);
    return best != nullptr && best->ratio.median > 1;
}

std::size_t PartResult::whole_rounds() const {
    std::size_t least = part.rounds;
    for (const Summary& summary : summaries) least = std::min(least, summary.trials.size());
    return least;
}

std::size_t PartResult::tests() const {
    const auto named = std::count_if(summaries.begin(), summaries.end(),
                                     [](const Summary& one) { return one.role == Role::named; });
    return named > 1 ? static_cast<std::size_t>(named - 1) : 0;
}

void summarise(PartResult& result) {
    for (Summary& summary : result.summaries) summarise_contender(summary);
    const auto baseline = std::find_if(
        result.summaries.begin(), result.summaries.end(),
        [&](const Summary& summary) { return summary.strategy == result.part.baseline; });
    if (baseline != result.summaries.end()) {
        compare_with(result, &*baseline, throughput, &Summary::ratio);
        if (is_open(result.part.settings)) {
            compare_with(result, &*baseline, response_p99, &Summary::p99_ratio);
        }
    }
    compare_with(result, result.with_role(Role::best), throughput, &Summary::ratio_to_best);
    for (std::string& note : disturbances_of(result)) {
        result.notes.push_back("the machine was disturbed: " + std::move(note));
    }
    result.conclusion = conclude(result);
}

}  // namespace hotcount::loadtest
