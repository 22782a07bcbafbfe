// What the rounds of a comparison say: figures, intervals, and which differences could be shown.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <span>
#include <utility>

#include "compare.hpp"
#include "load/draws.hpp"

namespace hotcount::loadtest {
namespace {

// Each resampling draws anew.
constexpr std::uint64_t kOfWrites = 1;
constexpr std::uint64_t kOfReads = 2;
constexpr std::uint64_t kOfRatios = 3;
constexpr std::uint64_t kOfPercentiles = 4;

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

/// Percentiles of rounds together, of which any may be taken several times.
class PooledTimes {
  public:
    PooledTimes(const Summary& summary, Histogram LoadResult::*times)
        : rounds_(summary.trials.size()) {
        std::set<std::size_t> cells;
        for (const TrialResult& trial : summary.trials) {
            const Histogram& of_one = trial.load.*times;
            largest_.push_back(of_one.max());
            if (of_one.count() == 0) continue;
            const std::size_t last = Histogram::cell_of(of_one.max());
            for (std::size_t cell = Histogram::cell_of(of_one.min()); cell <= last; ++cell) {
                if (of_one.count_in(cell) > 0) cells.insert(cell);
            }
        }
        cells_.assign(cells.begin(), cells.end());
        below_.reserve(cells_.size() * rounds_);
        std::vector<std::uint64_t> sums(rounds_, 0);
        for (const std::size_t cell : cells_) {
            for (std::size_t round = 0; round < rounds_; ++round) {
                sums[round] += (summary.trials[round].load.*times).count_in(cell);
            }
            below_.insert(below_.end(), sums.begin(), sums.end());
        }
    }

    double value_at(double quantile, std::span<const std::size_t> rounds) const {
        if (cells_.empty()) return 0;
        const std::uint64_t total = up_to(cells_.size() - 1, rounds);
        const auto rank = static_cast<std::uint64_t>(
            std::max(1.0, std::ceil(quantile * static_cast<double>(total))));
        std::size_t least = 0;
        std::size_t most = cells_.size() - 1;
        while (least < most) {
            const std::size_t middle = std::midpoint(least, most);
            if (up_to(middle, rounds) >= rank) {
                most = middle;
            } else {
                least = middle + 1;
            }
        }
        // As Histogram::value_at() has it.
        std::int64_t largest = 0;
        for (const std::size_t round : rounds) largest = std::max(largest, largest_[round]);
        return static_cast<double>(std::min(Histogram::cell_end(cells_[least]), largest));
    }

  private:
    std::uint64_t up_to(std::size_t place, std::span<const std::size_t> rounds) const {
        std::uint64_t count = 0;
        for (const std::size_t round : rounds) count += below_[place * rounds_ + round];
        return count;
    }

    std::size_t rounds_;
    std::vector<std::int64_t> largest_{};  ///< By round.
    std::vector<std::size_t> cells_{};
    std::vector<std::uint64_t> below_{};  ///< Of each cell: by round, what is in it or below it.
};

bool is_open(const Part& part) { return part.settings.arrival != Arrival::closed; }

void summarise_contender(Summary& summary, const Part& part) {
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
        if (trial.conclusion == Conclusion::broken || summary.conclusion == Conclusion::passed) {
            summary.conclusion = trial.conclusion;
        }
    }
    const std::uint64_t seed = part.settings.traffic.seed;
    const std::vector<double> of_writes = by_round(summary, writes);
    const std::vector<double> of_reads = by_round(summary, reads);
    summary.writes_per_s = spread_of(of_writes);
    summary.reads_per_s = spread_of(of_reads);
    summary.writes_interval = bootstrap_median(of_writes, mix(seed, kOfWrites));
    summary.reads_interval = bootstrap_median(of_reads, mix(seed, kOfReads));
    summary.floor_ns = timer_floor_ns(watches);
    if (summary.trials.size() < kLeastRounds) return;
    const PooledTimes times(summary,
                            is_open(part) ? &LoadResult::response_ns : &LoadResult::service_ns);
    const auto interval = [&](double quantile) {
        return bootstrap(
            summary.trials.size(), mix(seed, kOfPercentiles),
            [&](std::span<const std::size_t> rounds) { return times.value_at(quantile, rounds); });
    };
    summary.p50_interval_ns = interval(0.5);
    summary.p99_interval_ns = interval(0.99);
}

/// Holds every contender against one of them, by `figure`, into `member`; what the user named is
/// tested as one table.
template <class Figure>
void compare_with(PartResult& result, const Summary* base, const Figure& figure,
                  Ratio Summary::*member) {
    if (base == nullptr) return;
    const std::vector<double> to = by_round(*base, figure);
    std::vector<Ratio*> table;
    std::optional<Interval> noise;
    for (Summary& summary : result.summaries) {
        Ratio& ratio = summary.*member;
        ratio = paired_ratio(by_round(summary, figure), to,
                             mix(result.part.settings.traffic.seed, kOfRatios));
        if (&summary == base) continue;
        if (summary.role == Role::control) {
            Ratio* const alone[] = {&ratio};
            call_differences(alone, std::nullopt);
            noise = ratio.interval;
        } else if (summary.role == Role::named) {
            table.push_back(&ratio);
        }
    }
    call_differences(table, base->role == Role::best ? std::nullopt : noise);
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

std::string_view to_string(Role role) {
    switch (role) {
        case Role::named:
            return "named";
        case Role::control:
            return "control";
        case Role::best:
            return "best";
    }
    return "?";
}

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
    return best != nullptr && best->ratio.spread.median > 1;
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
    for (Summary& summary : result.summaries) summarise_contender(summary, result.part);
    const auto baseline = std::find_if(
        result.summaries.begin(), result.summaries.end(),
        [&](const Summary& summary) { return summary.strategy == result.part.baseline; });
    if (baseline != result.summaries.end()) {
        compare_with(result, &*baseline, throughput, &Summary::ratio);
        if (is_open(result.part)) {
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
