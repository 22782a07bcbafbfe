// The options that say when calls come, which servers there are, and what is done to them meanwhile;
// and the check of all options against the strategies that they are for.

#include <fmt/core.h>
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <hotcount/url.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli.hpp"
#include "load/workload.hpp"
#include "targets/driver_session.hpp"
#include "targets/sql_place.hpp"
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

Result<void> read_tables(const Given& given, TrialSettings& trial) {
    for (const auto& [option, member] : table_options()) {
        const auto found = given.find(option);
        if (found == given.end()) continue;
        if (found->second.empty()) {
            return make_error(ErrorCode::config, fmt::format("--{}: '' is no name", option));
        }
        if (!given.contains("db") || trial.managed_database) {
            return make_error(ErrorCode::config,
                              fmt::format("--{}: name the database that has the table with --db "
                                          "(a copy of yours), and leave out --managed",
                                          option));
        }
        trial.tables.emplace(option, found->second);
    }
    return {};
}

namespace {

/// Faults are done to what this program has started, and each to servers that can have it.
Result<void> check_server_of(const Given& given, const Settings& settings, const Fault& fault) {
    const bool of_database = is_of_database(fault.kind);
    const auto& managed = settings.managed;
    if (of_database && (!settings.trial.managed_database || given.contains("db"))) {
        return make_error(ErrorCode::config,
                          "--fault: db. needs --managed postgres, mariadb, mysql, postgres-pair or "
                          "galera, and no --db: "
                          "no other server is stopped");
    }
    if (!of_database && !settings.trial.managed_redis) {
        return make_error(ErrorCode::config,
                          "--fault needs --managed redis, sentinel or redis-cluster: no other "
                          "server is stopped");
    }
    for (const ServerKind server : managed) {
        if (is_redis(server) == of_database || can_have(server, fault.kind)) continue;
        const bool of_cluster =
            fault.kind == FaultKind::redis_reshard || fault.kind == FaultKind::redis_cut;
        return make_error(ErrorCode::config,
                          fmt::format("--fault {}: --managed {} cannot have it; take --managed {}",
                                      format_faults({fault}), to_string(server),
                                      of_cluster    ? "redis-cluster"
                                      : of_database ? "postgres-pair or galera"
                                                    : "sentinel or redis-cluster"));
    }
    return {};
}

constexpr bool promotes_standby(FaultKind kind) {
    return kind == FaultKind::db_kill9 || kind == FaultKind::db_failover ||
           kind == FaultKind::db_cut;
}

/// The standby of a pair takes over once, and is alone from then on.
Result<void> check_standby_of_pair(const Given& given, const Settings& settings) {
    if (!manages(settings, ServerKind::postgres_pair)) return {};
    const auto& faults = settings.trial.faults;
    const auto promotion = std::find_if(
        faults.begin(), faults.end(), [](const Fault& one) { return promotes_standby(one.kind); });
    if (promotion == faults.end()) return {};
    if (settings.command == Command::compare || given.contains("each")) {
        return make_error(
            ErrorCode::config,
            fmt::format("--fault {}: the standby of --managed postgres-pair is promoted once, and "
                        "{} has several loads; take `run` for each strategy",
                        format_faults({*promotion}),
                        given.contains("each") ? "--each" : "a comparison"));
    }
    const auto later = std::find_if(promotion + 1, faults.end(),
                                    [](const Fault& one) { return is_of_database(one.kind); });
    if (later == faults.end()) return {};
    return make_error(
        ErrorCode::config,
        fmt::format("--fault {}: the standby of --managed postgres-pair is promoted by {}, and has "
                    "no standby itself; take one run for each",
                    format_faults({*later}), format_faults({*promotion})));
}

}  // namespace

Result<void> read_faults(const Given& given, Settings& settings) {
    TrialSettings& trial = settings.trial;
    HOTCOUNT_TRY(read_within(given, "processes", parse_count, 1, kMostProcesses, trial.processes));
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
    if (given.contains("outage") && !trial.managed_redis) {
        return make_error(ErrorCode::config,
                          "--outage needs --managed redis, sentinel or redis-cluster: no other "
                          "server is stopped");
    }
    for (const Fault& fault : trial.faults) HOTCOUNT_TRY(check_server_of(given, settings, fault));
    return check_standby_of_pair(given, settings);
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

namespace {

/// As --managed calls it.
std::string kind_of(const std::string& url) {
    const auto parsed = parse_url(url);
    if (!parsed) return "database";
    return parsed->scheme.starts_with("postgres") ? "postgres" : parsed->scheme;
}

/// Two of a kind are postgres and postgres-2.
void add_database(std::vector<Database>& databases, Database database) {
    const std::string kind = database.label;
    const auto taken = [&] {
        return std::any_of(databases.begin(), databases.end(),
                           [&](const Database& one) { return one.label == database.label; });
    };
    for (int other = 2; taken(); ++other) database.label = fmt::format("{}-{}", kind, other);
    databases.push_back(std::move(database));
}

Result<void> check_one_redis(const Settings& settings) {
    if (std::count_if(settings.managed.begin(), settings.managed.end(), is_redis) < 2) return {};
    return make_error(ErrorCode::config,
                      "--managed: take one of redis, sentinel and redis-cluster");
}

Result<void> check_one_database(const Given& given, const Settings& settings,
                                const std::vector<Database>& databases) {
    if (databases.size() < 2) return {};
    if (settings.command != Command::compare) {
        const bool both = given.contains("db") && settings.trial.managed_database;
        return make_error(
            ErrorCode::config,
            both ? "--db names a server and --managed starts one: take one of them; compare takes "
                   "both"
                 : fmt::format("--{}: {} takes one database; compare takes several "
                               "databases",
                               given.contains("db") ? "db" : "managed",
                               to_string(settings.command)));
    }
    for (std::size_t i = 1; i < databases.size(); ++i) {
        for (std::size_t before = 0; before < i; ++before) {
            if (databases[i].url.empty() || databases[i].url != databases[before].url) continue;
            return make_error(ErrorCode::config, "--db names a database twice");
        }
    }
    return {};
}

}  // namespace

Result<void> read_servers(const Given& given, Settings& settings) {
    TrialSettings& trial = settings.trial;
    HOTCOUNT_TRY(read(given, "managed", parse_managed, settings.managed));
    trial.managed_redis = manages_redis(settings);
    HOTCOUNT_TRY(check_one_redis(settings));
    trial.managed_database = manages_database(settings);
    if (trial.managed_redis && given.contains("redis")) {
        return make_error(ErrorCode::config,
                          "--redis names a server and --managed starts one: take one of them");
    }
    HOTCOUNT_TRY(read(given, "redis", parse_redis_url, trial.redis_url));
    std::vector<std::string> urls;
    HOTCOUNT_TRY(read(given, "db", absolute_database_urls, urls));
    std::vector<Database> databases;
    for (const ServerKind kind : settings.managed) {
        if (is_redis(kind)) continue;
        add_database(databases, {std::string{to_string(kind)}, kind, {}});
    }
    for (const std::string& url : urls) add_database(databases, {kind_of(url), std::nullopt, url});
    HOTCOUNT_TRY(check_one_database(given, settings, databases));
    if (databases.size() == 1) trial.database_url = databases.front().url;
    if (databases.size() > 1) settings.databases = std::move(databases);
    return {};
}

void spread_over_databases(Settings& settings) {
    if (settings.databases.empty()) return;
    std::vector<StrategyGroup> groups;
    const auto add = [&](const StrategyGroup& from, const std::optional<Database>& database) {
        StrategyGroup group = from;
        std::erase_if(group.strategies, [&](const std::string& name) {
            const auto strategy = find_strategy(name);
            return strategy && strategy->on_sql() != database.has_value();
        });
        if (group.strategies.empty()) return;
        const auto& names = group.strategies;
        if (std::find(names.begin(), names.end(), group.baseline) == names.end()) {
            group.baseline = names.front();
        }
        group.trial.strategy = names.front();
        group.trial.database_url = database ? database->url : "";
        group.trial.managed_database = database && database->managed;
        group.database = database;
        groups.push_back(std::move(group));
    };
    for (const StrategyGroup& group : settings.groups) {
        add(group, std::nullopt);
        for (const Database& database : settings.databases) add(group, database);
    }
    settings.groups = std::move(groups);
}

// -- options beside the strategies that they are for ----------------------------------------------

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
            if (strategy.plain && strategy.store == StrategyStore::redis &&
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
    const bool on_redis =
        any([](const Strategy& one) { return one.store == StrategyStore::redis; });
    const bool slots = any([](const Strategy& one) {
        return one.workload == WorkloadKind::counters && one.store == StrategyStore::sql;
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
