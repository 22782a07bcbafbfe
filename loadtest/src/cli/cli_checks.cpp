#include "cli.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "targets/driver_session.hpp"
#include "targets/store_target.hpp"

namespace hotcount::loadtest {

bool manages(const Settings& settings, ServerKind kind) {
    return std::find(settings.managed.begin(), settings.managed.end(), kind) !=
           settings.managed.end();
}
bool manages_redis(const Settings& settings) {
    return std::any_of(settings.managed.begin(), settings.managed.end(), is_redis);
}
bool manages_database(const Settings& settings) {
    return !std::all_of(settings.managed.begin(), settings.managed.end(), is_redis);
}

namespace {

/// The command is kept in run.json and shown in reports.
Result<void> check_exec(const Strategy& strategy) {
    if (!strategy.exec) return {};
    HOTCOUNT_TRY_ASSIGN(const auto words, words_of_command(strategy.way));
    const bool secret = std::any_of(words.begin(), words.end(), [](const std::string& word) {
        return word.find("://") != std::string::npos && word.find('@') != std::string::npos;
    });
    if (!secret) return {};
    return make_error(ErrorCode::config,
                      "exec: a URL with a password in the command would be kept in run.json: "
                      "name it with --db, which the program finds in HOTCOUNT_LOAD_DB");
}

}  // namespace

Result<void> check_options(const Given& given, const Settings& settings) {
    std::vector<Strategy> all;
    for (const StrategyGroup& group : settings.groups) {
        for (const std::string& name : group.strategies) {
            HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(name));
            HOTCOUNT_TRY(check_exec(strategy));
            if (strategy.plain && strategy.store == StoreKind::redis &&
                !manages(settings, ServerKind::redis)) {
                return make_error(
                    ErrorCode::config,
                    fmt::format("{} needs --managed redis: its keys have no prefix", name));
            }
            all.push_back(strategy);
            if (strategy.workload != WorkloadKind::limiter) continue;
            if (auto fits = check_limit(group.trial.limit, strategy); !fits) {
                return make_error(ErrorCode::config, fmt::format("--limit does not suit {}: {}",
                                                                 name, fits.error().message));
            }
        }
    }
    const auto any = [&](auto fact) {
        return std::any_of(all.begin(), all.end(),
                           [&](const Strategy& one) { return std::invoke(fact, one); });
    };
    const auto is_for = [&](WorkloadKind workload) {
        return any([workload](const Strategy& one) { return one.workload == workload; });
    };
    const bool sets = is_for(WorkloadKind::zset);
    const bool on_sql = any(&Strategy::on_sql);
    const bool on_redis = any([](const Strategy& one) { return one.store == StoreKind::redis; });
    const bool slots = any([](const Strategy& one) {
        return one.workload == WorkloadKind::counters && one.store == StoreKind::sql;
    });
    const bool own_tables = !any([](const Strategy& one) {
        return one.workload != WorkloadKind::votes || one.exec || one.plain;
    });
    const bool async_baseline =
        std::any_of(settings.groups.begin(), settings.groups.end(),
                    [](const StrategyGroup& one) { return one.baseline.ends_with("/async"); });
    const bool managed_redis = manages_redis(settings);
    const bool open = given.contains("rate");
    struct Need {
        const char* option;
        bool met;
        std::string_view why;
    };
    const Need needs[] = {
        {"dup", is_for(WorkloadKind::votes),
         "--dup needs --workload votes: an add that is resent counts again"},
        {"db", on_sql,
         "--db needs --workload votes, or counters such as slots/... and redis/views: the others "
         "are "
         "in memory or on Redis"},
        {"limit", is_for(WorkloadKind::limiter), "--limit needs --workload limiter"},
        {"life", any(&Strategy::expires),
         "--life needs counters with a TTL, such as memory/ttl or redis/incr"},
        {"gate", sets, "--gate needs --workload zset"},
        {"rebuild-every", !any(std::not_fn(&Strategy::rebuilds)),
         "--rebuild-every needs memory/script or redis/script alone: the other methods have no "
         "rebuild"},
        {"bystander", on_redis, "--bystander needs a strategy on Redis"},
        {"in-flight", any(&Strategy::async),
         "--in-flight needs a strategy driven by completions: batched/async"},
        {"control-slower", settings.control_slower <= 0 || !async_baseline,
         "--control-slower needs a baseline whose callers wait: none that ends in /async"},
        {"redis", on_redis,
         "--redis needs a strategy on Redis, such as redis, redis/gcra or redis/script"},
        {"managed", !managed_redis || on_redis,
         "--managed redis, sentinel and redis-cluster need a strategy on Redis, such as redis, "
         "redis/gcra or redis/script"},
        {"managed", !manages_database(settings) || on_sql,
         "--managed: a database is for votes, and for counters such as slots/... and redis/views; "
         "the others are in memory or on Redis"},
        {"slots", slots, "--slots needs counters such as slots/sticky"},
        {"batch", sets && !open,
         "--batch needs --workload zset, in a closed loop: leave out --rate"},
        {"processes", !any(&Strategy::exec),
         "--processes: the program of exec: has processes of its own; leave it out"},
        {"processes", !any(&Strategy::in_process) && !any(&Strategy::async),
         "--processes share no memory: leave out strategies in memory, redis/retry and those that "
         "end in /async"},
    };
    for (const auto& [option, member] : table_options()) {
        if (own_tables || !given.contains(option)) continue;
        return make_error(ErrorCode::config,
                          fmt::format("--{} needs the library's strategies of votes alone, such as "
                                      "naive, batched or redis/cached",
                                      option));
    }
    for (const Need& need : needs) {
        if (!given.contains(need.option) || need.met) continue;
        return make_error(ErrorCode::config, std::string{need.why});
    }
    return {};
}

}  // namespace hotcount::loadtest
