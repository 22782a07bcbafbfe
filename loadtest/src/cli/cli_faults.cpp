#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "cli_read.hpp"

namespace hotcount::loadtest {

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
