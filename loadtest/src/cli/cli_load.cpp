// The options that say when calls come, and what is done to servers and callers meanwhile.
#include <fmt/core.h>

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

Result<void> read_faults(const Given& given, TrialSettings& trial) {
    HOTCOUNT_TRY(read(given, "processes", parse_count, trial.processes));
    if (given.contains("processes")) {
        HOTCOUNT_TRY(check_range<std::uint32_t>("processes", trial.processes, 1, kMostProcesses));
    }
    HOTCOUNT_TRY(read(given, "kill-every", parse_duration, trial.kill_every));
    HOTCOUNT_TRY(read(given, "stall", parse_duration, trial.stall));
    HOTCOUNT_TRY(read(given, "fault", parse_faults, trial.faults));
    Duration outage{0};
    HOTCOUNT_TRY(read(given, "outage", parse_duration, outage));
    for (const auto& [option, duration] :
         {std::pair{"kill-every", trial.kill_every}, std::pair{"stall", trial.stall},
          std::pair{"outage", outage}}) {
        if (!given.contains(option)) continue;
        if (duration < std::chrono::milliseconds{1}) {
            return make_error(ErrorCode::config, fmt::format("--{} takes 1ms or more", option));
        }
    }
    const bool disturbs = given.contains("kill-every") || given.contains("stall");
    if (disturbs && trial.processes == 0) {
        return make_error(ErrorCode::config,
                          "--kill-every and --stall take one of the --processes: name some");
    }
    if (given.contains("kill-every") && given.contains("stall")) {
        return make_error(ErrorCode::config, "--kill-every and --stall: take one of them");
    }
    if (given.contains("outage") && given.contains("fault")) {
        return make_error(ErrorCode::config, "--outage and --fault: take one of them");
    }
    const bool of_redis = std::any_of(trial.faults.begin(), trial.faults.end(),
                                      [](const Fault& one) { return !is_of_database(one.kind); });
    if ((of_redis || given.contains("outage")) && !trial.managed_redis) {
        return make_error(ErrorCode::config,
                          fmt::format("--{} needs --managed redis: no other server is stopped",
                                      of_redis ? "fault" : "outage"));
    }
    const bool of_database = std::any_of(trial.faults.begin(), trial.faults.end(),
                                         [](const Fault& one) { return is_of_database(one.kind); });
    if (of_database && (!trial.managed_database || given.contains("db"))) {
        return make_error(
            ErrorCode::config,
            "--fault: db. needs --managed postgres, mariadb or mysql, and no --db: no other "
            "server is stopped");
    }
    return {};
}

Result<void> place_faults(const Given& given, TrialSettings& trial) {
    if (given.contains("outage")) {
        Fault fault{trial.duration / 3, FaultKind::redis_pause, {}};
        HOTCOUNT_TRY(read(given, "outage", parse_duration, fault.lasts));
        trial.faults = {fault};
    }
    for (const Fault& fault : trial.faults) {
        if (fault.at < trial.duration) continue;
        return make_error(ErrorCode::config,
                          fmt::format("--fault {}: the load lasts {} only", format_faults({fault}),
                                      format_duration(trial.duration)));
    }
    return {};
}

}  // namespace hotcount::loadtest
