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

}  // namespace hotcount::loadtest
