#include "strategy.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <hotcount/limiter.hpp>
#include <hotcount/votes.hpp>
#include <iterator>

#include "words.hpp"

namespace hotcount::loadtest {
namespace {

constexpr WorkloadKind kWorkloads[] = {WorkloadKind::votes, WorkloadKind::counters,
                                       WorkloadKind::limiter, WorkloadKind::zset};

std::vector<Strategy> make_strategies() {
    std::vector<Strategy> all;
    for (const VoteStrategy way :
         {VoteStrategy::naive, VoteStrategy::slotted, VoteStrategy::batched}) {
        const std::string name{to_string(way)};
        all.push_back({WorkloadKind::votes, StoreKind::sql, name, name});
    }
    all.push_back({WorkloadKind::votes, StoreKind::sql, "batched", "batched/async", true});
    const auto add = [&](WorkloadKind workload, std::string_view way) {
        for (const StoreKind store : {StoreKind::memory, StoreKind::redis}) {
            std::string name = store == StoreKind::memory ? "memory" : "redis";
            if (!way.empty()) name += "/" + std::string{way};
            all.push_back({workload, store, std::string{way}, name});
        }
    };
    all.push_back({WorkloadKind::votes, StoreKind::sql, "insert_only", "insert_only"});
    add(WorkloadKind::votes, "cached");
    for (const char* way : {"cached_alone", "seed_cached"}) {
        all.push_back({WorkloadKind::votes, StoreKind::redis, way, std::string{"redis/"} + way});
    }
    // What waits in memory would end with the process, so there is no such strategy.
    all.push_back({WorkloadKind::votes, StoreKind::redis, "write_behind", "redis/write_behind"});
    for (const char* way : {"", "ttl"}) add(WorkloadKind::counters, way);
    // Their holes are between two commands of callers that may die: in memory there is nothing to see.
    for (const char* way : {"incr", "set_nx_none", "set_nx_first", "set_nx_ttl", "set_nx_both"}) {
        all.push_back({WorkloadKind::counters, StoreKind::redis, way, std::string{"redis/"} + way});
    }
    all.push_back({WorkloadKind::counters, StoreKind::redis, "retry", "redis/retry"});
    for (const char* way : {"sticky", "random", "adaptive"}) {
        all.push_back({WorkloadKind::counters, StoreKind::sql, way, std::string{"slots/"} + way});
    }
    for (const char* way : {"views", "views_local", "views_sql"}) {
        all.push_back({WorkloadKind::counters, StoreKind::redis, way, std::string{"redis/"} + way});
    }
    for (const Algorithm algorithm : algorithms()) {
        const AlgorithmInfo& known = info(algorithm);
        add(WorkloadKind::limiter, known.name);
        if (known.promise_from_first.empty()) continue;
        add(WorkloadKind::limiter, std::string{known.name} + "_first");
    }
    for (const char* way : {"list", "per_second_key", "racy_incr", "incr_expire", "racy_list"}) {
        all.push_back({WorkloadKind::limiter, StoreKind::redis, way, std::string{"redis/"} + way});
    }
    for (const char* way : {"script", "ttl_gate"}) add(WorkloadKind::zset, way);
    for (const char* way : {"watch", "exists_then_add", "unguarded_pipeline"}) {
        all.push_back({WorkloadKind::zset, StoreKind::redis, way, std::string{"redis/"} + way});
    }
    return all;
}

std::string list_of(WorkloadKind workload) {
    std::vector<std::string_view> names;
    for (const Strategy& strategy : all_strategies()) {
        if (strategy.workload == workload) names.push_back(strategy.name);
    }
    return fmt::format("{}", fmt::join(names, ", "));
}

std::string list_of_all() {
    std::string text;
    for (const WorkloadKind workload : kWorkloads) {
        text += fmt::format("{}{} ({})", text.empty() ? "" : "; ", list_of(workload),
                            to_string(workload));
    }
    return text;
}

constexpr std::string_view kExec = "exec:";

/// What a report calls a strategy with another number of callers.
Error refuse_row_name(std::string_view strategy, std::string_view callers) {
    return make_error(ErrorCode::config,
                      fmt::format("'{0}@{1}' is no strategy: {0} with so many callers is -s {0} "
                                  "-w {1}",
                                  strategy, callers));
}

/// exec:COMMAND, whatever the command.
Strategy exec_strategy(std::string_view name) {
    return {WorkloadKind::votes, StoreKind::sql, std::string{name.substr(kExec.size())},
            std::string{name}};
}

Strategy nothing() { return {WorkloadKind::counters, StoreKind::memory, kNothing, kNothing}; }

std::optional<Strategy> find(std::string_view name, std::optional<WorkloadKind> workload,
                             bool with_redis) {
    if (name == kNothing) return nothing();
    if (name.starts_with(kExec) && workload.value_or(WorkloadKind::votes) == WorkloadKind::votes) {
        return exec_strategy(name);
    }
    const StoreKind preferred = with_redis ? StoreKind::redis : StoreKind::memory;
    for (const Strategy& strategy : all_strategies()) {
        if (workload && strategy.workload != *workload) continue;
        if (strategy.name == name) return strategy;
        if (!strategy.way.empty() && strategy.way == name && strategy.store == preferred) {
            return strategy;
        }
    }
    return std::nullopt;
}

}  // namespace

std::string_view to_string(WorkloadKind kind) {
    return word_of(kind, {"votes", "counters", "limiter", "zset"});
}

Result<WorkloadKind> parse_workload(std::string_view text) {
    return parse_word("workload", text, kWorkloads);
}

bool is_exec(const Strategy& strategy) { return strategy.name.starts_with(kExec); }

bool is_views(const Strategy& strategy) {
    return strategy.workload == WorkloadKind::counters && strategy.way.starts_with("views");
}

bool is_wrong_way(const Strategy& strategy) {
    constexpr std::string_view kWays[] = {
        "seed_cached", "incr",           "set_nx_none",     "set_nx_first",
        "set_nx_ttl",  "set_nx_both",    "racy_incr",       "incr_expire",
        "racy_list",   "per_second_key", "exists_then_add", "unguarded_pipeline"};
    return std::find(std::begin(kWays), std::end(kWays), strategy.way) != std::end(kWays);
}

bool is_on_sql(const Strategy& strategy) {
    return strategy.workload == WorkloadKind::votes || strategy.store == StoreKind::sql ||
           is_views(strategy);
}

std::string ReadPromise::str() const {
    switch (kind) {
        case Kind::none:
            return "no count";
        case Kind::exact:
            return "exact";
        case Kind::within:
            return fmt::format("at most {} s stale", std::chrono::duration<double>(time).count());
        case Kind::eventual:
            break;
    }
    return "exact in the end";
}

ReadPromise reads_of(const Strategy& strategy, bool exact) {
    using Kind = ReadPromise::Kind;
    if (is_exec(strategy)) return {exact ? Kind::exact : Kind::eventual};
    const std::string& way = strategy.way;
    switch (strategy.workload) {
        case WorkloadKind::limiter:
        case WorkloadKind::zset:
            return {};
        case WorkloadKind::votes:
            if (way.starts_with("cached")) return {Kind::within, VotesOptions{}.max_age};
            return {strategy.store == StoreKind::sql ? Kind::exact : Kind::eventual};
        case WorkloadKind::counters:
            break;
    }
    // The racy ways of keys that expire, queued adds and write-behind make no promise.
    const bool at_once = strategy.store == StoreKind::sql || way.empty() || way == "ttl";
    return {at_once ? Kind::exact : Kind::eventual};
}

const std::vector<Strategy>& all_strategies() {
    static const std::vector<Strategy> kAll = make_strategies();
    return kAll;
}

Result<Strategy> find_strategy(std::string_view name) {
    if (name.starts_with(kExec)) return exec_strategy(name);
    if (name == kNothing) return nothing();
    for (const Strategy& strategy : all_strategies()) {
        if (strategy.name == name) return strategy;
    }
    return make_error(ErrorCode::config,
                      fmt::format("'{}' is no strategy; it takes {}", name, list_of_all()));
}

std::vector<std::string> strategies_of(std::optional<WorkloadKind> workload, bool with_redis) {
    std::vector<std::string> names;
    for (const Strategy& strategy : all_strategies()) {
        if (workload && strategy.workload != *workload) continue;
        if (strategy.store == StoreKind::redis && !with_redis) continue;
        names.push_back(strategy.name);
    }
    return names;
}

bool names_all(std::string_view text) {
    const auto names = split(text, ',');
    return std::find(names.begin(), names.end(), "all") != names.end();
}

Result<std::vector<std::string>> parse_strategies(std::string_view text,
                                                  std::optional<WorkloadKind> workload,
                                                  bool with_redis) {
    std::vector<std::string> names;
    const bool all = names_all(text);
    const auto add = [&](const std::string& name) {
        if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    };
    for (const std::string_view name : split(text, ',')) {
        if (name == "all") {
            for (const std::string& each : strategies_of(workload, with_redis)) add(each);
            continue;
        }
        if (const std::size_t callers = name.find('@');
            callers != std::string_view::npos && !name.starts_with(kExec) &&
            find(name.substr(0, callers), workload, with_redis)) {
            return refuse_row_name(name.substr(0, callers), name.substr(callers + 1));
        }
        const std::optional<Strategy> strategy = find(name, workload, with_redis);
        if (!strategy && workload) {
            return make_error(ErrorCode::config,
                              fmt::format("'{}' is no strategy for {}; it takes all, {}", name,
                                          to_string(*workload), list_of(*workload)));
        }
        if (!strategy) {
            return make_error(
                ErrorCode::config,
                fmt::format("'{}' is no strategy; it takes all, {}", name, list_of_all()));
        }
        if (strategy->store == StoreKind::redis && !with_redis) {
            return make_error(ErrorCode::config,
                              fmt::format("{} needs a Redis: --redis URL, or --managed redis to "
                                          "start a private one",
                                          strategy->name));
        }
        const bool twice = std::find(names.begin(), names.end(), strategy->name) != names.end();
        if (twice && !all) {
            return make_error(ErrorCode::config,
                              fmt::format("strategy '{}' is named twice", strategy->name));
        }
        add(strategy->name);
    }
    return names;
}

}  // namespace hotcount::loadtest
