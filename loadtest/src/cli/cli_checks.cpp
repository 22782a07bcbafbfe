#include "cli_checks.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "targets/store_targets.hpp"

namespace hotcount::loadtest {

bool manages(const Settings& settings, ServerKind kind) {
    return std::find(settings.managed.begin(), settings.managed.end(), kind) !=
           settings.managed.end();
}
bool manages_database(const Settings& settings) {
    return manages(settings, ServerKind::postgres) || manages(settings, ServerKind::mariadb);
}

Result<void> check_options(const Given& given, const Settings& settings) {
    bool votes = false;
    bool limiter = false;
    bool sets = false;
    bool mortal = false;
    bool slots = false;
    bool on_sql = false;
    bool in_memory = false;
    bool on_redis = false;
    bool async = false;
    bool rebuilds = true;
    for (const StrategyGroup& group : settings.groups) {
        votes = votes || group.trial.workload == WorkloadKind::votes;
        limiter = limiter || group.trial.workload == WorkloadKind::limiter;
        sets = sets || group.trial.workload == WorkloadKind::zset;
        for (const std::string& name : group.strategies) {
            HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(name));
            on_redis = on_redis || strategy.store == StoreKind::redis;
            async = async || strategy.async;
            rebuilds =
                rebuilds && strategy.workload == WorkloadKind::zset && strategy.way == "script";
            const bool counter = strategy.workload == WorkloadKind::counters;
            const bool slotted = counter && strategy.store == StoreKind::sql;
            const bool views = is_views(strategy);
            mortal = mortal || (counter && !slotted && !views && !strategy.way.empty() &&
                                strategy.way != "retry");
            slots = slots || slotted;
            on_sql = on_sql || is_on_sql(strategy);
            // A retry queue is in the memory of its process.
            if (strategy.way == "seed_cached" && !manages(settings, ServerKind::redis)) {
                return make_error(
                    ErrorCode::config,
                    "redis/seed_cached needs --managed redis: its keys have no prefix");
            }
            in_memory = in_memory || strategy.store == StoreKind::memory || strategy.way == "retry";
            if (strategy.workload != WorkloadKind::limiter) continue;
            if (auto fits = check_limit(group.trial.limit, strategy); !fits) {
                return make_error(ErrorCode::config, fmt::format("--limit does not suit {}: {}",
                                                                 name, fits.error().message));
            }
        }
    }
    if (given.contains("dup") && !votes) {
        return make_error(ErrorCode::config,
                          "--dup needs --workload votes: an add that is resent counts again");
    }
    if (given.contains("db") && !on_sql) {
        return make_error(ErrorCode::config,
                          "--db needs --workload votes, or counters such as slots/... and "
                          "redis/views: the others are in memory or on Redis");
    }
    if (given.contains("limit") && !limiter) {
        return make_error(ErrorCode::config, "--limit needs --workload limiter");
    }
    if (given.contains("life") && !mortal) {
        return make_error(ErrorCode::config,
                          "--life needs counters with a TTL, such as memory/ttl or redis/incr");
    }
    if (given.contains("gate") && !sets) {
        return make_error(ErrorCode::config, "--gate needs --workload zset");
    }
    if (given.contains("rebuild-every") && !rebuilds) {
        return make_error(ErrorCode::config,
                          "--rebuild-every needs memory/script or redis/script alone: the other "
                          "methods have no rebuild");
    }
    if (given.contains("bystander") && !on_redis) {
        return make_error(ErrorCode::config, "--bystander needs a strategy on Redis");
    }
    if (given.contains("in-flight") && !async) {
        return make_error(ErrorCode::config,
                          "--in-flight needs a strategy driven by completions: batched/async");
    }
    for (const StrategyGroup& group : settings.groups) {
        if (settings.control_slower <= 0 || !group.baseline.ends_with("/async")) continue;
        return make_error(ErrorCode::config,
                          "--control-slower needs a baseline whose callers wait: none that ends in "
                          "/async");
    }
    const bool managed_redis = manages(settings, ServerKind::redis);
    if ((given.contains("redis") || managed_redis) && !on_redis) {
        return make_error(ErrorCode::config,
                          fmt::format("--{} needs a strategy on Redis, such as redis, redis/gcra "
                                      "or redis/script",
                                      managed_redis ? "managed redis" : "redis"));
    }
    if (manages_database(settings) && !on_sql) {
        return make_error(ErrorCode::config,
                          "--managed: a database is for votes, and for counters such as slots/... "
                          "and redis/views; the others are in memory or on Redis");
    }
    if (given.contains("slots") && !slots) {
        return make_error(ErrorCode::config, "--slots needs counters such as slots/sticky");
    }
    if (given.contains("batch") && (!sets || given.contains("rate"))) {
        return make_error(ErrorCode::config,
                          "--batch needs --workload zset, in a closed loop: leave out --rate");
    }
    if (given.contains("processes") && (in_memory || async)) {
        return make_error(ErrorCode::config,
                          "--processes share no memory: leave out strategies in memory, "
                          "redis/retry and those that end in /async");
    }
    return {};
}

}  // namespace hotcount::loadtest
