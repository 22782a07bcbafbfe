#include "sweep.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <utility>

#include "report/figures.hpp"
#include "report/machine.hpp"
#include "report/progress.hpp"
#include "report/report_json.hpp"
#include "report/table.hpp"

namespace hotcount::loadtest {
namespace {

constexpr std::array kQuantiles = {0.5, 0.99, 0.999};

double response_ms(const TrialResult& trial, double quantile) {
    return static_cast<double>(trial.load.response_ns.value_at(quantile)) * 1e-6;
}

std::uint64_t errors_of(const TrialResult& trial) {
    return trial.load.tally.failed + trial.load.tally.unknown + trial.load.censored;
}

/// One word for people; the reasons stand below.
std::string_view outcome_of(const TrialResult& trial) {
    return trial.overloaded() ? "overloaded" : to_string(trial.conclusion);
}

}  // namespace

Result<Sweep> run_sweep(const std::vector<StrategyGroup>& groups, const StudySettings& study,
                        const TrialContext& context) {
    Sweep sweep;
    sweep.started = utc_now();
    std::size_t loads = 0;
    double load_s = 0;
    for (const StrategyGroup& group : groups) {
        const std::size_t trials = group.strategies.size() * study.rates.size();
        loads += trials;
        load_s += static_cast<double>(trials) *
                  std::chrono::duration<double>(group.trial.warmup + group.trial.duration).count();
    }
    context.progress.expect(loads, load_s);
    const ProgressScope scope(context.progress);
    FreshTrials trials(context);
    bool measured = false;
    bool other = false;  // Inconclusive, and not for want of speed.
    for (const StrategyGroup& group : groups) {
        for (const std::string& strategy : group.strategies) {
            SweepResult& result = sweep.results.emplace_back();
            result.strategy = strategy;
            for (std::size_t at = 0; at < study.rates.size() && !context.interrupt; ++at) {
                TrialSettings settings = group.trial;
                settings.strategy = strategy;
                settings.rate_per_s = study.rates[at];
                auto trial = trials.run(
                    settings, fmt::format("sweep-{}-{:02}", strategy, at + 1),
                    fmt::format("sweep {} at {}/s", strategy, three_digits(study.rates[at])));
                if (!trial && !measured) return trial.error();
                if (!trial) {
                    other = true;
                    result.reasons.push_back("it could not be measured: " + trial.error().message);
                    break;
                }
                measured = true;
                if (trial->conclusion == Conclusion::broken) sweep.conclusion = Conclusion::broken;
                other = other ||
                        (trial->conclusion == Conclusion::inconclusive && !trial->overloaded());
                result.trials.push_back(std::move(*trial));
            }
            const std::size_t done = result.trials.size();
            if (context.interrupt && done < study.rates.size()) {
                result.reasons.push_back(
                    done == 0 ? std::string{"not run: interrupted before"}
                              : fmt::format("not run at {}/s and above: interrupted before",
                                            three_digits(study.rates[done])));
            }
        }
    }
    if (sweep.conclusion == Conclusion::passed && (other || context.interrupt)) {
        sweep.conclusion = Conclusion::inconclusive;
    }
    return sweep;
}

nlohmann::json sweep_document(const Sweep& sweep, const nlohmann::json& provenance) {
    nlohmann::json document = begin_document("sweep", provenance);
    document["started"] = sweep.started;
    nlohmann::json& results = document["strategies"] = nlohmann::json::array();
    for (const SweepResult& result : sweep.results) {
        nlohmann::json& trials = results.emplace_back(
            nlohmann::json{{"strategy", result.strategy}, {"reasons", result.reasons}})["trials"];
        trials = nlohmann::json::array();
        for (const TrialResult& trial : result.trials) trials.push_back(trial_document(trial));
    }
    add_conclusion(document, sweep.conclusion);
    return document;
}

std::string sweep_text(const Sweep& sweep) {
    Table table({"strategy", "rate/s", "ok/s", "p50 ms", "p99 ms", "p99.9 ms", "errors", "lost",
                 "generator", "verdict"});
    std::string notes;
    for (const SweepResult& result : sweep.results) {
        for (const TrialResult& trial : result.trials) {
            const LoadResult& load = trial.load;
            std::vector<std::string> row = {result.strategy,
                                            three_digits(trial.settings.rate_per_s),
                                            three_digits(load.per_second(load.tally.ok()))};
            for (const double quantile : kQuantiles) {
                row.push_back(percentile_ms(load.response_ns, quantile));
            }
            row.push_back(grouped(static_cast<double>(errors_of(trial))));
            row.push_back(trial.audited ? grouped(static_cast<double>(trial.audit.lost())) : "?");
            row.push_back(trial.headroom() > 0 ? three_digits(trial.headroom()) + " x" : "?");
            row.emplace_back(outcome_of(trial));
            table.add(std::move(row));
            for (const std::string& reason : trial.reasons) {
                notes += fmt::format("  {} at {}/s: {}\n", result.strategy,
                                     three_digits(trial.settings.rate_per_s), reason);
            }
        }
        for (const std::string& reason : result.reasons) {
            notes += fmt::format("  {}: {}\n", result.strategy, reason);
        }
    }
    return fmt::format("Rates of an open loop, on {}\n\n{}{}", machine_line(), table.str(), notes);
}

std::string sweep_csv(const Sweep& sweep) {
    std::string text = "strategy,rate_per_s,ok_per_s,p50_ms,p99_ms,p999_ms,errors,lost,verdict\n";
    for (const SweepResult& result : sweep.results) {
        for (const TrialResult& trial : result.trials) {
            const LoadResult& load = trial.load;
            text += fmt::format("{},{:.6g},{:.6g}", result.strategy, trial.settings.rate_per_s,
                                load.per_second(load.tally.ok()));
            for (const double quantile : kQuantiles) {
                text += fmt::format(",{:.6g}", response_ms(trial, quantile));
            }
            text += fmt::format(",{},{},{}\n", errors_of(trial),
                                trial.audited ? fmt::format("{}", trial.audit.lost()) : "",
                                outcome_of(trial));
        }
    }
    return text;
}

}  // namespace hotcount::loadtest
