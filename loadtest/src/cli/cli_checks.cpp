#include "cli.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>
#include <string_view>

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
    bool votes = false;
    bool limiter = false;
    bool sets = false;
    bool mortal = false;
    bool slots = false;
    bool on_sql = false;
    bool in_process = false;
    bool on_redis = false;
    bool async = false;
    bool exec = false;
    bool rebuilds = true;
    bool async_baseline = false;
    bool own_tables = true;
    for (const StrategyGroup& group : settings.groups) {
        async_baseline = async_baseline || group.baseline.ends_with("/async");
        votes = votes || group.trial.workload == WorkloadKind::votes;
        limiter = limiter || group.trial.workload == WorkloadKind::limiter;
        sets = sets || group.trial.workload == WorkloadKind::zset;
        for (const std::string& name : group.strategies) {
            HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(name));
            on_redis = on_redis || strategy.store == StoreKind::redis;
            async = async || strategy.async;
            rebuilds = rebuilds && strategy.rebuilds;
            HOTCOUNT_TRY(check_exec(strategy));
            exec = exec || strategy.exec;
            const bool counter = strategy.workload == WorkloadKind::counters;
            own_tables = own_tables && strategy.workload == WorkloadKind::votes && !strategy.exec &&
                         !strategy.plain;
            const bool slotted = counter && strategy.store == StoreKind::sql;
            mortal = mortal || strategy.expires;
            slots = slots || slotted;
            on_sql = on_sql || strategy.on_sql();
            if (strategy.plain && strategy.store == StoreKind::redis &&
                !manages(settings, ServerKind::redis)) {
                return make_error(
                    ErrorCode::config,
                    fmt::format("{} needs --managed redis: its keys have no prefix", name));
            }
            in_process = in_process || strategy.in_process;
            if (strategy.workload != WorkloadKind::limiter) continue;
            if (auto fits = check_limit(group.trial.limit, strategy); !fits) {
                return make_error(ErrorCode::config, fmt::format("--limit does not suit {}: {}",
                                                                 name, fits.error().message));
            }
        }
    }
    const bool managed_redis = manages_redis(settings);
    const bool open = given.contains("rate");
    struct Need {
        const char* option;
        bool met;
        std::string_view why;
    };
    const Need needs[] = {
        {"dup", votes, "--dup needs --workload votes: an add that is resent counts again"},
        {"db", on_sql,
         "--db needs --workload votes, or counters such as slots/... and redis/views: the others "
         "are "
         "in memory or on Redis"},
        {"limit", limiter, "--limit needs --workload limiter"},
        {"life", mortal, "--life needs counters with a TTL, such as memory/ttl or redis/incr"},
        {"gate", sets, "--gate needs --workload zset"},
        {"rebuild-every", rebuilds,
         "--rebuild-every needs memory/script or redis/script alone: the other methods have no "
         "rebuild"},
        {"bystander", on_redis, "--bystander needs a strategy on Redis"},
        {"in-flight", async, "--in-flight needs a strategy driven by completions: batched/async"},
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
        {"processes", !exec,
         "--processes: the program of exec: has processes of its own; leave it out"},
        {"processes", !in_process && !async,
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
