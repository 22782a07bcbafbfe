#include "compare.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <hotcount/detail/base/random.hpp>
#include <numeric>
#include <utility>

#include "load/workload.hpp"
#include "machine.hpp"
#include "progress.hpp"

namespace hotcount::loadtest {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

double in_s(Duration duration) { return std::chrono::duration<double>(duration).count(); }

double trial_s(const Part& part) { return in_s(part.settings.warmup + part.settings.duration); }

// Bounds of one short trial. At most eleven run: 1, 2, 4 ... 1024 callers.
constexpr milliseconds kLeastTry{50};
constexpr milliseconds kMostTry{250};
constexpr milliseconds kMostTryWarmup{50};
constexpr double kFarLess = 0.8;
constexpr double kClearlyMore = 1.1;

/// Settings of a short trial of the baseline; its folder is not kept.
TrialSettings try_settings(const Part& part) {
    TrialSettings settings = part.settings;
    settings.strategy = part.baseline;
    settings.warmup = std::min<Duration>(settings.warmup, kMostTryWarmup);
    settings.duration = std::clamp<Duration>(settings.duration / 5, kLeastTry, kMostTry);
    settings.keep = false;
    return settings;
}

/// True if the part has a closed loop of threads and no faults.
bool looks_for_best(const Part& part) {
    const TrialSettings& settings = part.settings;
    const auto strategy = find_strategy(part.baseline);
    return part.find_best && part.strategies.size() > 1 && settings.workers > 1 &&
           settings.arrival == Arrival::closed && settings.processes == 0 &&
           settings.faults.empty() && strategy && !strategy->async;
}

/// How many trials a part has, and how long their loads last.
struct Extent {
    std::size_t trials{0};
    double load_s{0};
};

Extent extent_of(const Part& part, std::size_t contenders, std::size_t tries) {
    const TrialSettings short_one = try_settings(part);
    const std::size_t rounds = part.rounds * contenders;
    return {rounds + tries,
            static_cast<double>(rounds) * trial_s(part) +
                static_cast<double>(tries) * in_s(short_one.warmup + short_one.duration)};
}

/// Upper bound; trials that turn out to be unnecessary are skipped.
Extent extent_of(const Part& part) {
    const bool best = looks_for_best(part);
    return extent_of(part, part.strategies.size() + (part.control ? 1 : 0) + (best ? 1 : 0),
                     best ? callers_to_try(part.settings.workers).size() : 0);
}

class Runner {
  public:
    Runner(FreshTrials& trials, Progress& progress) : trials_(trials), progress_(progress) {}

    Result<PartResult> run(const Part& part) {
        PartResult result;
        result.part = part;
        HOTCOUNT_TRY(try_callers(result));
        const std::vector<Contender> contenders = contenders_of(result);
        const Extent most = extent_of(part);
        const Extent needed = extent_of(part, contenders.size(), result.tried.size());
        if (!over()) {
            progress_.expect_fewer(most.trials - needed.trials, most.load_s - needed.load_s);
        }
        for (const Contender& contender : contenders) {
            Summary& summary = result.summaries.emplace_back();
            summary.strategy = contender.name;
            summary.role = contender.role;
        }
        const std::uint64_t seed = part.settings.traffic.seed;
        for (std::uint32_t round = 0; round < part.rounds && !over(); ++round) {
            for (const std::size_t index : order_of_round(seed, round, contenders.size())) {
                if (over()) break;
                auto trial = run_one(part, round, contenders[index]);
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
        if (over()) result.conclusion = worse_of(result.conclusion, Conclusion::inconclusive);
        return result;
    }

    bool over() const { return failed_ || trials_.interrupted(); }

  private:
    Result<TrialResult> run_one(const Part& part, std::uint32_t round, const Contender& contender) {
        TrialSettings settings = part.settings;
        settings.strategy = contender.strategy;
        settings.workers = contender.workers;
        if (contender.role == Role::control) settings.slower = part.control_slower;
        return trials_.run(
            settings, fmt::format("{}-{:02}-{}", part.name, round + 1, contender.name),
            fmt::format("{} {}/{} {}", part.name, round + 1, part.rounds, contender.name));
    }

    /// Runs short trials of the baseline with 1, 2, 4 ... callers until two in a row have less than
    /// kFarLess of the best throughput. Returns an error only if nothing was measured before.
    Result<void> try_callers(PartResult& result) {
        const Part& part = result.part;
        if (!looks_for_best(part)) return {};
        TrialSettings settings = try_settings(part);
        double most = 0;
        int worse = 0;
        for (const std::uint32_t callers : callers_to_try(settings.workers)) {
            if (over()) break;
            // The full number is always tried: the best is compared with it.
            if (worse >= 2 && callers < part.settings.workers) continue;
            settings.workers = callers;
            auto trial = trials_.run(settings, fmt::format("{}-try-{}", part.name, callers),
                                     fmt::format("{} {} callers", part.name, callers), false);
            if (!trial && !measured_) return trial.error();
            if (!trial) break;
            measured_ = true;
            const double per_s = throughput(*trial);
            result.tried.push_back({callers, per_s});
            most = std::max(most, per_s);
            worse = per_s < kFarLess * most ? worse + 1 : 0;
            if (trial->conclusion == Conclusion::broken) {
                result.conclusion = Conclusion::broken;
                result.notes.push_back(fmt::format("{} with {} callers: {}", part.baseline, callers,
                                                   trial->reasons.front()));
            }
        }
        return {};
    }

    static std::vector<Contender> contenders_of(const PartResult& result) {
        const Part& part = result.part;
        const std::uint32_t workers = part.settings.workers;
        std::vector<Contender> contenders;
        for (const std::string& strategy : part.strategies) {
            contenders.push_back({strategy, strategy, workers, Role::named});
        }
        if (part.control) {
            contenders.push_back({part.baseline + "/again", part.baseline, workers, Role::control});
        }
        if (const auto callers = best_callers(result.tried, workers)) {
            contenders.push_back({fmt::format("{}@{}", part.baseline, *callers), part.baseline,
                                  *callers, Role::best});
        }
        return contenders;
    }

    FreshTrials& trials_;
    Progress& progress_;
    bool measured_{false};  ///< At least one trial.
    bool failed_{false};    ///< A trial failed after another one was measured.
};

/// Result of a part that the comparison did not reach.
PartResult part_not_run(Part part) {
    PartResult result;
    for (const std::string& strategy : part.strategies) {
        result.summaries.emplace_back().strategy = strategy;
    }
    result.part = std::move(part);
    summarise(result);
    return result;
}

}  // namespace

std::vector<Part> compare_parts(const Settings& settings) {
    std::vector<Part> parts;
    const bool workloads =
        std::any_of(settings.groups.begin(), settings.groups.end(), [&](const StrategyGroup& one) {
            return one.trial.workload != settings.groups.front().trial.workload;
        });
    for (const StrategyGroup& group : settings.groups) {
        Part& part = parts.emplace_back();
        if (group.database) part.database = group.database->label;
        part.name = group.trial.arrival == Arrival::closed ? "closed" : "open";
        if (!part.database.empty()) part.name = fmt::format("{}-{}", part.database, part.name);
        if (workloads) {
            part.name = fmt::format("{}-{}", to_string(group.trial.workload), part.name);
        }
        part.settings = group.trial;
        part.strategies = group.strategies;
        part.baseline = group.baseline;
        part.rounds = settings.rounds;
        part.control = settings.control;
        part.control_slower = settings.control_slower;
        part.find_best = settings.find_best;
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
    closed.find_best = false;
    // Only `compare` measures noise: a control costs as much as one more strategy.
    closed.control = false;

    // The main use of hotcount: all users vote for one item.
    Part hot = closed;
    hot.name = "hot";
    hot.settings.traffic.items = 1;
    hot.settings.traffic.users = std::max<std::uint64_t>(hot.settings.traffic.users, 10'000'000);
    hot.settings.traffic.mix = Mix{100, 0, 0};
    hot.settings.traffic.dup = 0;
    hot.settings.duration = std::min<Duration>(closed.settings.duration, milliseconds{500});
    hot.strategies = {"naive", "batched"};
    hot.find_best = true;

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
    if (!with_redis) return {hot, closed, counters};

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
    return {hot, closed, counters, limiter, zset};
}

std::vector<std::size_t> order_of_round(std::uint64_t seed, std::uint32_t round,
                                        std::size_t contenders) {
    std::vector<std::size_t> order(contenders);
    std::iota(order.begin(), order.end(), std::size_t{0});
    Random random(mix(seed, round / 2));
    for (std::size_t left = contenders; left > 1; --left) {
        std::swap(order[left - 1], order[random.below(left)]);
    }
    if (round % 2 == 1) std::reverse(order.begin(), order.end());
    return order;
}

std::vector<std::uint32_t> callers_to_try(std::uint32_t workers) {
    std::vector<std::uint32_t> callers;
    for (std::uint32_t few = 1; few < workers; few *= 2) callers.push_back(few);
    callers.push_back(workers);
    return callers;
}

std::optional<std::uint32_t> best_callers(const std::vector<CallersTried>& tried,
                                          std::uint32_t workers) {
    if (tried.empty() || tried.back().callers != workers) return std::nullopt;
    const auto best = std::max_element(
        tried.begin(), tried.end(),
        [](const CallersTried& a, const CallersTried& b) { return a.per_s < b.per_s; });
    if (best->per_s <= kClearlyMore * tried.back().per_s) return std::nullopt;
    return best->callers;
}

Result<Comparison> run_comparison(const std::vector<Part>& parts, const TrialContext& context,
                                  const std::function<void(const PartResult&)>& on_part) {
    Comparison comparison;
    comparison.started = utc_now();
    Extent all;
    for (const Part& part : parts) {
        const Extent extent = extent_of(part);
        all.trials += extent.trials;
        all.load_s += extent.load_s;
    }
    context.progress.expect(all.trials, all.load_s);
    const ProgressScope scope(context.progress);
    FreshTrials fresh(context);
    Runner runner(fresh, context.progress);
    for (const Part& part : parts) {
        if (runner.over()) {
            comparison.parts.push_back(part_not_run(part));
        } else {
            HOTCOUNT_TRY_ASSIGN(PartResult result, runner.run(part));
            comparison.conclusion = worse_of(comparison.conclusion, result.conclusion);
            comparison.parts.push_back(std::move(result));
        }
        context.progress.done();
        if (on_part) on_part(comparison.parts.back());
    }
    if (runner.over()) {
        comparison.conclusion = worse_of(comparison.conclusion, Conclusion::inconclusive);
    }
    return comparison;
}

}  // namespace hotcount::loadtest
