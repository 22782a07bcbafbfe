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

constexpr ReadPromise kExact{ReadPromise::Kind::exact};
constexpr ReadPromise kEventual{ReadPromise::Kind::eventual};

// The ways of a workload on one or two stores, in the order of the lists; `facts`: what they share.
void add(std::vector<Strategy>& all, std::initializer_list<StrategyStore> stores,
         std::initializer_list<std::string_view> ways, Strategy facts) {
    for (const std::string_view way : ways) {
        for (const StrategyStore store : stores) {
            Strategy& one = all.emplace_back(facts);
            one.store = store;
            one.way = way;
            one.in_process |= store == StrategyStore::memory;
            one.name = store == StrategyStore::memory          ? "memory"
                       : store == StrategyStore::redis         ? "redis"
                       : facts.workload == WorkloadKind::votes ? ""
                                                               : "slots";
            if (!one.name.empty() && !way.empty()) one.name += '/';
            one.name += way;
        }
    }
}

std::vector<Strategy> make_strategies() {
    constexpr auto kSql = StrategyStore::sql, kMemory = StrategyStore::memory,
                   kRedis = StrategyStore::redis;
    std::vector<Strategy> all;

    Strategy votes{WorkloadKind::votes, kSql, {}, {}, kExact};
    add(all, {kSql}, {"naive", "slotted", "batched"}, votes);
    all.push_back({WorkloadKind::votes, kSql, "batched", "batched/async", kExact, true});
    votes.plain = true;
    add(all, {kSql}, {"insert_only"}, votes);
    votes.plain = false;
    votes.reads = {ReadPromise::Kind::within, VotesOptions{}.max_age};
    add(all, {kMemory, kRedis}, {"cached"}, votes);
    add(all, {kRedis}, {"cached_alone"}, votes);
    votes.reads = kEventual;
    Strategy seeds = votes;
    seeds.plain = seeds.racy = true;
    add(all, {kRedis}, {"seed_cached"}, seeds);
    // On Redis only: votes that wait in memory would end with the process.
    add(all, {kRedis}, {"write_behind"}, votes);

    Strategy counters{WorkloadKind::counters, kSql, {}, {}, kExact};
    add(all, {kMemory, kRedis}, {""}, counters);
    Strategy mortal = counters;
    mortal.expires = true;
    add(all, {kMemory, kRedis}, {"ttl"}, mortal);
    // Their holes are between two commands of callers that may die: in memory there is nothing to see.
    mortal.racy = true;
    mortal.reads = kEventual;
    add(all, {kRedis}, {"incr", "set_nx_none", "set_nx_first", "set_nx_ttl", "set_nx_both"},
        mortal);
    Strategy late = counters;
    late.reads = kEventual;
    late.in_process = true;
    add(all, {kRedis}, {"retry"}, late);
    add(all, {kSql}, {"sticky", "random", "adaptive"}, counters);
    late.in_process = false;
    late.views = true;
    add(all, {kRedis}, {"views", "views_local", "views_sql"}, late);

    Strategy limiter{WorkloadKind::limiter, kMemory, {}, {}};
    for (const Algorithm algorithm : algorithms()) {
        const AlgorithmInfo& known = info(algorithm);
        add(all, {kMemory, kRedis}, {known.name}, limiter);
        if (known.promise_from_first.empty()) continue;
        add(all, {kMemory, kRedis}, {std::string{known.name} + "_first"}, limiter);
    }
    add(all, {kRedis}, {"list"}, limiter);
    limiter.racy = true;
    add(all, {kRedis}, {"per_second_key", "racy_incr", "incr_expire", "racy_list"}, limiter);

    Strategy sets{WorkloadKind::zset, kMemory, {}, {}};
    sets.rebuilds = true;
    add(all, {kMemory, kRedis}, {"script"}, sets);
    sets.rebuilds = false;
    add(all, {kMemory, kRedis}, {"ttl_gate"}, sets);
    add(all, {kRedis}, {"watch"}, sets);
    sets.racy = true;
    add(all, {kRedis}, {"exists_then_add", "unguarded_pipeline"}, sets);
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

/// The error for NAME@CALLERS, a row's name in reports, given as the name of a strategy.
Error refuse_row_name(std::string_view strategy, std::string_view callers) {
    return make_error(ErrorCode::config,
                      fmt::format("'{0}@{1}' is no strategy: {0} with so many callers is -s {0} "
                                  "-w {1}",
                                  strategy, callers));
}

/// exec:COMMAND, whatever the command.
Strategy exec_strategy(std::string_view name) {
    Strategy strategy{WorkloadKind::votes, StrategyStore::sql,
                      std::string{name.substr(kExec.size())}, std::string{name}, kExact};
    strategy.exec = true;
    return strategy;
}

Strategy nothing() {
    Strategy strategy{WorkloadKind::counters, StrategyStore::memory, kNothing, kNothing, kEventual};
    strategy.expires = strategy.in_process = true;
    return strategy;
}

std::optional<Strategy> find(std::string_view name, std::optional<WorkloadKind> workload,
                             bool with_redis) {
    if (name == kNothing) return nothing();
    if (name.starts_with(kExec) && workload.value_or(WorkloadKind::votes) == WorkloadKind::votes) {
        return exec_strategy(name);
    }
    const StrategyStore preferred = with_redis ? StrategyStore::redis : StrategyStore::memory;
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
        if (strategy.store == StrategyStore::redis && !with_redis) continue;
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
        if (strategy->store == StrategyStore::redis && !with_redis) {
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
