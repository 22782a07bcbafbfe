#include "compare.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "fresh_trials.hpp"
#include "machine.hpp"

namespace hotcount::loadtest {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

double in_s(Duration duration) { return std::chrono::duration<double>(duration).count(); }

double trial_s(const Part& part) { return in_s(part.settings.warmup + part.settings.duration); }

double throughput(const TrialResult& trial) {
    const Tally& tally = trial.load.tally;
    const bool writes = trial.settings.traffic.mix.vote > 0;
    return trial.load.per_second(writes ? tally.writes_ok() : tally.reads_ok);
}

template <class Figure>
std::vector<double> by_round(const Summary& summary, const Figure& figure) {
    std::vector<double> values;
    for (const TrialResult& trial : summary.trials) values.push_back(figure(trial));
    return values;
}

void add_reasons(Summary& summary, const TrialResult& trial) {
    for (const std::string& reason : trial.reasons) {
        if (std::find(summary.reasons.begin(), summary.reasons.end(), reason) ==
            summary.reasons.end()) {
            summary.reasons.push_back(reason);
        }
    }
}

void summarise_strategy(Summary& summary) {
    for (const TrialResult& trial : summary.trials) {
        const LoadResult& load = trial.load;
        summary.response_ns.merge(load.response_ns);
        summary.service_ns.merge(load.service_ns);
        summary.bystander_ns.merge(load.bystander_ns);
        summary.audit.add(trial.audit);
        if (trial.audited) ++summary.audited;
        summary.overloaded = summary.overloaded || trial.overloaded();
        add_reasons(summary, trial);
        if (trial.conclusion == Conclusion::broken || summary.conclusion == Conclusion::passed) {
            summary.conclusion = trial.conclusion;
        }
    }
    summary.writes_per_s = spread_of(by_round(summary, [](const TrialResult& trial) {
        return trial.load.per_second(trial.load.tally.writes_ok());
    }));
    summary.reads_per_s = spread_of(by_round(summary, [](const TrialResult& trial) {
        return trial.load.per_second(trial.load.tally.reads_ok);
    }));
}

Conclusion conclude(const PartResult& result) {
    bool any_carried = false;
    bool any_other = false;
    for (const Summary& summary : result.summaries) {
        if (summary.conclusion == Conclusion::broken) return Conclusion::broken;
        if (summary.conclusion == Conclusion::passed) any_carried = true;
        if (summary.conclusion == Conclusion::inconclusive && !summary.overloaded) any_other = true;
    }
    return any_carried && !any_other ? Conclusion::passed : Conclusion::inconclusive;
}

class Runner {
  public:
    explicit Runner(FreshTrials& trials) : trials_(trials) {}

    Result<PartResult> run(const Part& part) {
        PartResult result;
        result.part = part;
        for (const std::string& strategy : part.strategies) {
            result.summaries.emplace_back().strategy = strategy;
        }
        for (std::uint32_t round = 0; round < part.rounds && !over(); ++round) {
            for (const std::size_t index : order_of_round(round, part.strategies.size())) {
                if (over()) break;
                auto trial = run_one(part, round, index);
                Summary& summary = result.summaries[index];
                if (trial) {
                    measured_ = true;
                    summary.trials.push_back(std::move(*trial));
                } else if (!measured_) {
                    return trial.error();
                } else {
                    failed_ = true;
                    summary.conclusion = Conclusion::inconclusive;
                    summary.reasons.push_back(fmt::format("round {} could not be measured: {}",
                                                          round + 1, trial.error().message));
                }
            }
        }
        summarise(result);
        if (over() && result.conclusion == Conclusion::passed) {
            result.conclusion = Conclusion::inconclusive;
        }
        return result;
    }

    /// Nothing more is measured.
    bool over() const { return failed_ || trials_.interrupted(); }

  private:
    Result<TrialResult> run_one(const Part& part, std::uint32_t round, std::size_t index) {
        TrialSettings settings = part.settings;
        settings.strategy = part.strategies[index];
        return trials_.run(
            settings, fmt::format("{}-{:02}-{}", part.name, round + 1, settings.strategy),
            fmt::format("{} {}/{} {}", part.name, round + 1, part.rounds, settings.strategy));
    }

    FreshTrials& trials_;
    bool measured_{false};  ///< At least one trial.
    bool failed_{false};    ///< A trial after that could not be.
};

/// Operations per second that the fastest strategy of a part answered.
double fastest(const PartResult& result) {
    double most = 0;
    for (const Summary& summary : result.summaries) {
        most = std::max(most, summary.writes_per_s.median + summary.reads_per_s.median);
    }
    return most;
}

}  // namespace

std::vector<Part> compare_parts(const Settings& settings) {
    std::vector<Part> parts;
    for (const StrategyGroup& group : settings.groups) {
        Part& part = parts.emplace_back();
        part.name = group.trial.arrival == Arrival::closed ? "closed" : "open";
        if (settings.groups.size() > 1) {
            part.name = fmt::format("{}-{}", to_string(group.trial.workload), part.name);
        }
        part.settings = group.trial;
        part.strategies = group.strategies;
        part.baseline = group.baseline;
        part.rounds = settings.rounds;
    }
    return parts;
}

std::vector<Part> canonical_parts(const Settings& settings) {
    Part closed;
    closed.name = "closed";
    closed.settings = settings.trial;
    closed.settings.workload = WorkloadKind::votes;
    closed.settings.arrival = Arrival::closed;
    closed.settings.rate_per_s = 0;
    const bool with_redis = !settings.trial.redis_url.empty();
    closed.strategies = {"naive", "slotted", "batched"};
    closed.baseline = "naive";
    closed.rounds = settings.rounds;

    // What hotcount is for: everybody votes for one item.
    Part hot = closed;
    hot.name = "hot";
    hot.settings.traffic.items = 1;
    hot.settings.traffic.users = std::max<std::uint64_t>(hot.settings.traffic.users, 10'000'000);
    hot.settings.traffic.mix = Mix{100, 0, 0};
    hot.settings.traffic.dup = 0;
    hot.settings.duration = std::min<Duration>(closed.settings.duration, milliseconds{800});
    hot.strategies = {"naive", "batched"};
    hot.rounds = std::min<std::uint32_t>(closed.rounds, 5);

    Part open = closed;
    open.name = "open";
    open.settings.arrival = Arrival::poisson;
    open.settings.rate_per_s = settings.trial.rate_per_s;
    open.rate_may_fall = settings.trial.rate_per_s == 0;
    if (open.rate_may_fall) open.settings.rate_per_s = 5000;
    // Its tail needs more operations than a rate does.
    open.settings.duration = 2 * closed.settings.duration;
    open.rounds = 1;

    Part counters = closed;
    counters.name = "counters";
    counters.settings.workload = WorkloadKind::counters;
    counters.settings.traffic.dup = 0;
    counters.settings.database_url.clear();
    counters.strategies = {"memory"};
    if (with_redis) counters.strategies.emplace_back("redis");
    counters.baseline = counters.strategies.front();
    counters.settings.duration = std::min<Duration>(closed.settings.duration, seconds{1});
    counters.rounds = std::min<std::uint32_t>(closed.rounds, 3);
    if (!with_redis) return {hot, closed, open, counters};

    Part limiter = counters;
    limiter.name = "limiter";
    limiter.settings.workload = WorkloadKind::limiter;
    limiter.settings.traffic.mix.unvote = 0;
    limiter.strategies = {"redis/gcra", "redis/fixed_window", "redis/incr_expire"};
    limiter.baseline = limiter.strategies.front();
    limiter.rounds = std::min<std::uint32_t>(closed.rounds, 2);

    Part zset = limiter;
    zset.name = "zset";
    zset.settings.workload = WorkloadKind::zset;
    zset.settings.traffic = for_sets(closed.settings.traffic);
    zset.strategies = {"redis/script", "redis/ttl_gate", "redis/unguarded_pipeline"};
    zset.baseline = zset.strategies.front();
    return {hot, closed, open, counters, limiter, zset};
}

std::vector<std::size_t> order_of_round(std::uint32_t round, std::size_t strategies) {
    std::vector<std::size_t> order(strategies);
    // Forwards and backwards in turn, beginning one place later every other round.
    for (std::size_t place = 0; place < strategies; ++place) {
        const std::size_t step = round % 2 == 0 ? place : strategies - 1 - place;
        order[place] = (step + round / 2) % strategies;
    }
    return order;
}

double rate_for(double wanted_per_s, double closed_per_s) {
    if (closed_per_s >= 2 * wanted_per_s) return wanted_per_s;
    const double half = closed_per_s / 2;
    const double step = half >= 1000 ? 500 : half >= 100 ? 50 : 5;
    return std::max(1.0, std::floor(half / step) * step);
}

void summarise(PartResult& result) {
    for (Summary& summary : result.summaries) summarise_strategy(summary);
    const auto baseline = std::find_if(
        result.summaries.begin(), result.summaries.end(),
        [&](const Summary& summary) { return summary.strategy == result.part.baseline; });
    if (baseline != result.summaries.end()) {
        const std::vector<double> base = by_round(*baseline, throughput);
        for (Summary& summary : result.summaries) {
            summary.ratio = spread_of(paired_ratios(by_round(summary, throughput), base));
        }
    }
    result.conclusion = conclude(result);
}

Result<Comparison> run_comparison(const std::vector<Part>& parts, const TrialContext& context) {
    Comparison comparison;
    comparison.started = utc_now();
    std::size_t trials = 0;
    double load_s = 0;
    for (const Part& part : parts) {
        trials += part.rounds * part.strategies.size();
        load_s += trial_s(part) * static_cast<double>(part.rounds * part.strategies.size());
    }
    context.progress.expect(trials, load_s);
    FreshTrials fresh(context);
    Runner runner(fresh);
    double closed_per_s = 0;
    for (Part part : parts) {
        if (runner.over()) break;
        if (part.rate_may_fall && closed_per_s > 0) {
            part.settings.rate_per_s = rate_for(part.settings.rate_per_s, closed_per_s);
        }
        HOTCOUNT_TRY_ASSIGN(PartResult result, runner.run(part));
        if (part.settings.arrival == Arrival::closed &&
            part.settings.workload == WorkloadKind::votes) {
            closed_per_s = fastest(result);
        }
        if (result.conclusion == Conclusion::broken ||
            comparison.conclusion == Conclusion::passed) {
            comparison.conclusion = result.conclusion;
        }
        comparison.parts.push_back(std::move(result));
    }
    if (runner.over() && comparison.conclusion == Conclusion::passed) {
        comparison.conclusion = Conclusion::inconclusive;
    }
    return comparison;
}

}  // namespace hotcount::loadtest
