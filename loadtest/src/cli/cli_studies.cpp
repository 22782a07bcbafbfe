#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <utility>

#include "cli_read.hpp"
#include "load/trace.hpp"

namespace hotcount::loadtest {

/// Bursts and stairs are of independent callers.
Result<void> read_arrival(const Given& given, TrialSettings& trial) {
    std::optional<RateProfile> profile;
    HOTCOUNT_TRY(read(given, "arrival", parse_profile, profile));
    if (!profile) return read(given, "arrival", parse_arrival, trial.arrival);
    trial.arrival = Arrival::poisson;
    trial.profile = std::move(*profile);
    return {};
}

Result<void> read_trace(const Given& given, TrialSettings& trial) {
    const auto found = given.find("trace");
    if (found == given.end()) return {};
    const auto refuse = [](std::string why) {
        return make_error(ErrorCode::config, "--trace: " + std::move(why));
    };
    for (const char* option : {"rate", "arrival", "items", "zipf", "users", "mix", "dup", "seed"}) {
        if (!given.contains(option)) continue;
        return refuse(fmt::format("the file says when what is done: leave out --{}", option));
    }
    const bool votes = trial.workload == WorkloadKind::votes;
    if (!votes && trial.workload != WorkloadKind::counters) {
        return refuse("it is for votes and counters");
    }
    auto trace = Trace::read(found->second, trial.max_operations);
    if (!trace) return refuse(trace.error().message);
    const Duration length = (*trace)->length();
    trial.traffic.trace = *trace;
    trial.traffic.items = (*trace)->items();
    trial.traffic.mix = (*trace)->mix();
    trial.traffic.dup = 0;
    if (trial.life > Duration{0} && trial.traffic.mix.unvote > 0) {
        return refuse("with --life nothing is taken back, and the file does");
    }
    trial.arrival = Arrival::trace;
    trial.rate_per_s = static_cast<double>((*trace)->lines().size()) /
                       std::chrono::duration<double>(length).count();
    if (!given.contains("warmup")) trial.warmup = Duration{0};
    if (trial.warmup >= length) return refuse("--warmup is as long as the whole file");
    if (!given.contains("duration")) trial.duration = length - trial.warmup;
    return {};
}

namespace {

/// A percentile of staleness is one of reads that are told a count.
Result<void> check_staleness(const Settings& settings) {
    const auto& terms = settings.study.slo.terms;
    const auto stale = std::find_if(terms.begin(), terms.end(), [](const SloTerm& term) {
        return term.metric == SloMetric::staleness;
    });
    if (stale == terms.end()) return {};
    for (const StrategyGroup& group : settings.groups) {
        if (group.trial.traffic.mix.read == 0) {
            return make_error(ErrorCode::config,
                              fmt::format("--slo {}: the --mix has no reads", stale->text));
        }
        for (const std::string& name : group.strategies) {
            HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(name));
            if (reads_of(strategy, false).kind != ReadPromise::Kind::none) continue;
            return make_error(ErrorCode::config,
                              fmt::format("--slo {}: {} tells no counts", stale->text, name));
        }
    }
    return {};
}

}  // namespace

Result<void> read_study(const Given& given, Settings& settings) {
    StudySettings& study = settings.study;
    study.markdown = given.contains("markdown");
    if (study.markdown && settings.json) {
        return make_error(ErrorCode::config, "--markdown and --json: take one of them");
    }
    if (settings.command == Command::search) {
        HOTCOUNT_TRY_ASSIGN(study.slo, parse_slo("p99<10ms,err<0.1%,lost=0"));
        HOTCOUNT_TRY(read(given, "slo", parse_slo, study.slo));
        HOTCOUNT_TRY(check_staleness(settings));
        HOTCOUNT_TRY(read(given, "from", parse_rate, study.from_per_s));
        HOTCOUNT_TRY(read(given, "max-time", parse_duration, study.max_time));
        return {};
    }
    if (settings.command == Command::scale) {
        study.workers = {1, 2, 4, 8, 16, 32};
        HOTCOUNT_TRY(read(given, "workers", parse_worker_counts, study.workers));
        study.rounds = settings.rounds;
        return {};
    }
    if (settings.command != Command::sweep) return {};
    if (!given.contains("rates")) {
        return make_error(ErrorCode::config, "sweep needs --rates, such as 500:20000:x1.5");
    }
    return read(given, "rates", parse_rates, study.rates);
}

}  // namespace hotcount::loadtest
