#include "scale.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>
#include <numeric>
#include <span>
#include <utility>

#include "report/figures.hpp"
#include "report/machine.hpp"
#include "report/progress.hpp"
#include "report/report_json.hpp"
#include "report/table.hpp"

namespace hotcount::loadtest {
namespace {

/// Writes; reads if nothing is written.
double writes_per_s(const TrialResult& trial) {
    const Tally& tally = trial.load.tally;
    const bool writes = trial.settings.traffic.mix.vote > 0;
    return trial.load.per_second(writes ? tally.writes_ok() : tally.reads_ok);
}

/// The rounds that have all numbers of callers.
ScaleRounds whole_rounds(const ScaleResult& result) {
    std::size_t rounds = SIZE_MAX;
    for (const auto& trials : result.trials) rounds = std::min(rounds, trials.size());
    ScaleRounds whole(result.trials.empty() ? 0 : rounds);
    for (std::size_t round = 0; round < whole.size(); ++round) {
        for (const auto& trials : result.trials) {
            const TrialResult& trial = trials[round];
            whole[round].push_back(
                {static_cast<double>(trial.settings.workers), writes_per_s(trial)});
        }
    }
    return whole;
}

std::size_t measured_points(const ScaleResult& result) {
    std::size_t count = 0;
    for (const auto& trials : result.trials) count += trials.size();
    return count;
}

void take(ScaleResult& result, std::size_t at, TrialResult trial) {
    if (trial.conclusion == Conclusion::broken || result.conclusion == Conclusion::passed) {
        result.conclusion = trial.conclusion;
    }
    for (const std::string& reason : trial.reasons) {
        const std::string with = fmt::format("{} callers: {}", trial.settings.workers, reason);
        if (std::find(result.reasons.begin(), result.reasons.end(), with) == result.reasons.end()) {
            result.reasons.push_back(with);
        }
    }
    result.trials[at].push_back(std::move(trial));
}

nlohmann::json json_of(const std::optional<Interval>& interval) {
    if (!interval) return nullptr;
    return {{"low", interval->low}, {"high", interval->high}};
}

nlohmann::json json_of(const std::optional<ScaleLaw>& law) {
    if (!law) return nullptr;
    return {
        {"lambda_per_s", law->fit.lambda},
        {"sigma", law->fit.sigma},
        {"sigma_interval", json_of(law->sigma)},
        {"kappa", law->fit.kappa},
        {"kappa_interval", json_of(law->kappa)},
        {"peak_callers",
         law->peak_callers ? nlohmann::json(*law->peak_callers) : nlohmann::json(nullptr)},
        {"peak_interval", json_of(law->peak)},
        {"no_peak_because", law->no_peak_because.empty() ? nlohmann::json(nullptr)
                                                         : nlohmann::json(law->no_peak_because)}};
}

std::string with_interval(double value, const std::optional<Interval>& interval) {
    if (!interval) return three_digits(value);
    return fmt::format("{} ({} to {})", three_digits(value), three_digits(interval->low),
                       three_digits(interval->high));
}

/// So far outside of what was measured a law may lie that leaves most of a machine out.
constexpr double kMargin = 1.05;

/// What each number of callers did in these rounds.
std::map<double, std::vector<double>> rates_of(const ScaleRounds& rounds,
                                               std::span<const std::size_t> drawn) {
    std::map<double, std::vector<double>> rates;
    for (const std::size_t round : drawn) {
        for (const ScalePoint& point : rounds[round]) rates[point.callers].push_back(point.per_s);
    }
    return rates;
}

std::optional<UslFit> fit_medians(const ScaleRounds& rounds, std::span<const std::size_t> drawn) {
    std::vector<ScalePoint> points;
    for (const auto& [callers, rates] : rates_of(rounds, drawn)) {
        points.push_back({callers, median(rates)});
    }
    return fit_usl(points);
}

/// Where the law says what no round did; empty: nowhere.
std::string misfit(const UslFit& fit, const std::map<double, std::vector<double>>& measured) {
    for (const auto& [callers, rates] : measured) {
        const auto [least, most] = std::minmax_element(rates.begin(), rates.end());
        const double law = fit.per_s(callers);
        if (law >= *least / kMargin && law <= *most * kMargin) continue;
        return fmt::format(
            "the law does not fit these rounds: with {} callers it says {}/s, they made {} to {}",
            callers, three_digits(law), three_digits(*least), three_digits(*most));
    }
    return {};
}

std::string law_text(const ScaleResult& result, std::uint32_t most) {
    if (!result.law) return "  no law: it takes three numbers of callers that all did something\n";
    const ScaleLaw& law = *result.law;
    std::string peak =
        fmt::format("peak beyond {} callers, if there is one", kExtrapolation * most);
    if (!law.no_peak_because.empty()) {
        peak = "no peak: " + law.no_peak_because;
    } else if (law.peak_callers) {
        peak = fmt::format("peak at {} callers: {}/s", with_interval(*law.peak_callers, law.peak),
                           three_digits(law.fit.per_s(*law.peak_callers)));
    }
    return fmt::format(
        "  sigma {}: the share of the work that waits for one place\n"
        "  kappa {}: what each pair of callers costs each other\n"
        "  {}\n",
        with_interval(law.fit.sigma, law.sigma), with_interval(law.fit.kappa, law.kappa), peak);
}

}  // namespace

std::optional<ScaleLaw> fit_law(const ScaleRounds& rounds, std::uint64_t seed) {
    std::vector<std::size_t> all(rounds.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    const auto fit = fit_medians(rounds, all);
    if (!fit) return std::nullopt;
    ScaleLaw law;
    law.fit = *fit;
    const auto measured = rates_of(rounds, all);
    const double most = measured.rbegin()->first;
    const auto interval = [&](const auto& figure) {
        return bootstrap(rounds.size(), seed, [&](std::span<const std::size_t> drawn) {
            return figure(fit_medians(rounds, drawn).value_or(law.fit));
        });
    };
    law.sigma = interval([](const UslFit& one) { return one.sigma; });
    law.kappa = interval([](const UslFit& one) { return one.kappa; });
    law.no_peak_because = misfit(law.fit, measured);
    const double furthest = kExtrapolation * most;
    const auto peak = fit->peak();
    if (!law.no_peak_because.empty() || !peak || *peak > furthest) return law;
    law.peak = interval([](const UslFit& one) { return one.peak().value_or(INFINITY); });
    if (law.peak && law.peak->high > furthest) {
        law.peak.reset();
        law.no_peak_because = fmt::format(
            "these rounds do not say where it is; it may be beyond {} callers", furthest);
        return law;
    }
    law.peak_callers = peak;
    return law;
}

Result<Scale> run_scale(const std::vector<StrategyGroup>& groups, const StudySettings& study,
                        const TrialContext& context) {
    Scale scale;
    scale.started = utc_now();
    scale.workers = study.workers;
    std::size_t loads = 0;
    double load_s = 0;
    for (const StrategyGroup& group : groups) {
        const std::size_t trials = group.strategies.size() * study.workers.size() * study.rounds;
        loads += trials;
        load_s += static_cast<double>(trials) *
                  std::chrono::duration<double>(group.trial.warmup + group.trial.duration).count();
    }
    context.progress.expect(loads, load_s);
    const ProgressScope scope(context.progress);
    FreshTrials trials(context);
    bool measured = false;
    bool failed = false;
    for (const StrategyGroup& group : groups) {
        for (const std::string& strategy : group.strategies) {
            ScaleResult& result = scale.results.emplace_back();
            result.strategy = strategy;
            result.trials.resize(study.workers.size());
            for (std::uint32_t round = 0; round < study.rounds; ++round) {
                for (std::size_t place = 0; place < study.workers.size(); ++place) {
                    if (failed || context.interrupt) break;
                    // Upwards and downwards in turn: a machine that slows down favours nobody.
                    const std::size_t at =
                        round % 2 == 0 ? place : study.workers.size() - 1 - place;
                    TrialSettings settings = group.trial;
                    settings.strategy = strategy;
                    settings.workers = settings.in_flight = study.workers[at];
                    auto trial = trials.run(
                        settings,
                        fmt::format("scale-{}-{:02}-{}", strategy, round + 1, settings.workers),
                        fmt::format("scale {}/{} {} with {}", round + 1, study.rounds, strategy,
                                    settings.workers));
                    if (!trial && !measured) return trial.error();
                    failed = !trial;
                    if (!trial) {
                        result.reasons.push_back("it could not be measured: " +
                                                 trial.error().message);
                        result.conclusion = Conclusion::inconclusive;
                        break;
                    }
                    measured = true;
                    take(result, at, std::move(*trial));
                }
            }
            result.law = fit_law(whole_rounds(result), group.trial.traffic.seed);
            const bool whole = measured_points(result) == study.workers.size() * study.rounds;
            if (!whole && result.conclusion == Conclusion::passed) {
                result.conclusion = Conclusion::inconclusive;
            }
            if (!whole && result.reasons.empty()) {
                result.reasons.emplace_back(measured_points(result) == 0
                                                ? "not run: it ended before"
                                                : "it ended before all its rounds were run");
            }
            if (result.conclusion == Conclusion::broken || scale.conclusion == Conclusion::passed) {
                scale.conclusion = result.conclusion;
            }
        }
    }
    return scale;
}

nlohmann::json scale_document(const Scale& scale, const nlohmann::json& provenance) {
    nlohmann::json document = begin_document("scale", provenance);
    document["started"] = scale.started;
    document["workers"] = scale.workers;
    nlohmann::json& results = document["strategies"] = nlohmann::json::array();
    for (const ScaleResult& result : scale.results) {
        nlohmann::json one = {{"strategy", result.strategy},
                              {"law", json_of(result.law)},
                              {"conclusion", to_string(result.conclusion)},
                              {"reasons", result.reasons}};
        nlohmann::json& points = one["points"] = nlohmann::json::array();
        for (std::size_t at = 0; at < result.trials.size(); ++at) {
            nlohmann::json trials = nlohmann::json::array();
            nlohmann::json rates = nlohmann::json::array();
            for (const TrialResult& trial : result.trials[at]) {
                rates.push_back(writes_per_s(trial));
                trials.push_back(trial_document(trial));
            }
            points.push_back({{"workers", scale.workers[at]},
                              {"writes_per_s", std::move(rates)},
                              {"trials", std::move(trials)}});
        }
        results.push_back(std::move(one));
    }
    add_conclusion(document, scale.conclusion);
    return document;
}

std::string scale_text(const Scale& scale) {
    std::string text =
        fmt::format("Throughput of a closed loop by callers, on {}\n", machine_line());
    for (const ScaleResult& result : scale.results) {
        Table table({"callers", "median/s", "least", "most", "law", "p99 ms", "generator"});
        for (std::size_t at = 0; at < result.trials.size(); ++at) {
            std::vector<double> rates;
            Histogram service_ns;
            double headroom = 0;
            for (const TrialResult& trial : result.trials[at]) {
                rates.push_back(writes_per_s(trial));
                service_ns.merge(trial.load.service_ns);
                if (headroom == 0 || trial.headroom() < headroom) headroom = trial.headroom();
            }
            const Spread spread = spread_of(rates);
            const auto rate = [&](double figure) {
                return rates.empty() ? "-" : three_digits(figure);
            };
            table.add({fmt::format("{}", scale.workers[at]), rate(spread.median), rate(spread.min),
                       rate(spread.max),
                       result.law ? three_digits(result.law->fit.per_s(scale.workers[at])) : "-",
                       percentile_ms(service_ns, 0.99),
                       headroom > 0 ? three_digits(headroom) + " x" : "?"});
        }
        if (measured_points(result) == 0) {
            text += fmt::format("\n{}: not run\n", result.strategy);
        } else {
            text += fmt::format("\n{}\n{}{}", result.strategy, table.str(),
                                law_text(result, scale.workers.back()));
        }
        for (const std::string& reason : result.reasons) {
            text += fmt::format("  {}: {}\n", to_string(result.conclusion), reason);
        }
    }
    return text;
}

}  // namespace hotcount::loadtest
