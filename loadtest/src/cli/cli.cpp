#include "cli.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <hotcount/build_info.hpp>
#include <memory>
#include <optional>
#include <utility>

#include "load/runner.hpp"
#include "report/report.hpp"

namespace hotcount::loadtest {
namespace {

Result<double> parse_number(std::string_view text) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size() || !std::isfinite(number)) {
        return make_error(ErrorCode::config, fmt::format("'{}' is no number", text));
    }
    return number;
}

Result<void> read_traffic(const Given& given, TrialSettings& trial) {
    TrafficSettings& traffic = trial.traffic;
    const bool votes = trial.workload == WorkloadKind::votes;
    if (!votes) traffic.dup = 0;
    if (trial.workload == WorkloadKind::limiter) traffic.mix.unvote = 0;
    if (trial.workload == WorkloadKind::zset) traffic = for_sets(traffic);
    if (trial.batch > 0) traffic.mix = {1, 0, 0};  // Upserts alone travel in batches.
    // A -1 to a key that has expired would begin a new count below 0.
    const bool short_lived = trial.workload == WorkloadKind::counters && trial.life > Duration{0};
    if (short_lived) traffic.mix.unvote = 0;
    HOTCOUNT_TRY(read_within(given, "items", parse_count, 1, kMostItems, traffic.items));
    HOTCOUNT_TRY(read_within(given, "users", parse_count, 1, kMostUsers, traffic.users));
    HOTCOUNT_TRY(read_within(given, "zipf", parse_number, 0.0, 20.0, traffic.zipf));
    HOTCOUNT_TRY(read(given, "mix", parse_mix, traffic.mix));
    if (short_lived && traffic.mix.unvote > 0) {
        return make_error(ErrorCode::config,
                          fmt::format("--mix {}: with --life nothing is taken back; leave unvote "
                                      "out",
                                      given.at("mix")));
    }
    HOTCOUNT_TRY(read(given, "seed", parse_count, traffic.seed));
    if (!votes) return {};
    return read(given, "dup", parse_share, traffic.dup);
}

Result<void> read_load(const Given& given, TrialSettings& trial) {
    HOTCOUNT_TRY(read(given, "rate", parse_rate, trial.rate_per_s));
    if (given.contains("rate")) trial.arrival = Arrival::poisson;
    HOTCOUNT_TRY(read_arrival(given, trial));
    if (trial.arrival == Arrival::closed && given.contains("rate")) {
        return make_error(ErrorCode::config,
                          "--arrival closed has no rate: leave out --rate, or take poisson or "
                          "uniform");
    }
    if (trial.arrival != Arrival::closed && !given.contains("rate")) {
        return make_error(ErrorCode::config,
                          fmt::format("--arrival {} needs a --rate", given.at("arrival")));
    }
    HOTCOUNT_TRY(read_within(given, "workers", parse_count, 1, kMostWorkers, trial.workers));
    HOTCOUNT_TRY(read_within(given, "in-flight", parse_count, 1, kMostInFlight, trial.in_flight));
    HOTCOUNT_TRY(read(given, "duration", parse_duration, trial.duration));
    if (trial.duration <= Duration{0}) {
        return make_error(ErrorCode::config, "--duration is 0; it takes more");
    }
    HOTCOUNT_TRY(read(given, "warmup", parse_duration, trial.warmup));
    HOTCOUNT_TRY(read(given, "timeout", parse_duration, trial.timeout));
    if (trial.timeout <= Duration{0}) {
        return make_error(ErrorCode::config, "--timeout is 0; it takes more");
    }
    if (trial.disturbed() || given.contains("outage")) trial.max_errors = 1;
    HOTCOUNT_TRY(read(given, "max-errors", parse_share, trial.max_errors));
    HOTCOUNT_TRY(read(given, "threshold", parse_thresholds, trial.thresholds));
    HOTCOUNT_TRY(
        read_within(given, "max-ops", parse_count, 1, kMostOperations, trial.max_operations));
    if (trial.arrival != Arrival::closed && trial.rate_per_s > 0) {
        LoadSettings load;
        load.arrival = trial.arrival;
        load.rate_per_s = trial.rate_per_s;
        load.profile = trial.profile;
        load.warmup = trial.warmup;
        load.duration = trial.duration;
        const std::uint64_t needed = ledger_capacity(load, UINT64_MAX);
        if (needed > trial.max_operations) {
            return make_error(ErrorCode::config,
                              fmt::format("this rate and time need up to {} operations; raise "
                                          "--max-ops, which is {}",
                                          needed, trial.max_operations));
        }
    }
    return {};
}

/// The strategies, one group for each workload.
Result<void> read_groups(const Given& given, Settings& settings) {
    const bool run = settings.command == Command::run && !settings.each;
    const bool with_redis = given.contains("redis") || manages_redis(settings);
    std::optional<WorkloadKind> workload;
    HOTCOUNT_TRY(read(given, "workload", parse_workload, workload));
    std::vector<std::string> names;
    if (run) {
        constexpr std::array kDefaults = {"batched", "", "gcra", "script"};
        names = {kDefaults[static_cast<std::size_t>(workload.value_or(WorkloadKind::votes))]};
        if (names[0].empty()) names = {with_redis ? "redis" : "memory"};
        HOTCOUNT_TRY_ASSIGN(names, parse_strategies(names[0], workload, with_redis));
    } else {
        names = strategies_of(workload.value_or(WorkloadKind::votes), with_redis);
    }
    HOTCOUNT_TRY(read(
        given, "strategies",
        [&](std::string_view text) { return parse_strategies(text, workload, with_redis); },
        names));
    // "all" leaves out seed_cached without a private Redis, which it needs.
    const auto named = given.find("strategies");
    if (named == given.end() || names_all(named->second)) {
        std::erase_if(names, [&](const std::string& name) {
            return name == "redis/seed_cached" && !manages(settings, ServerKind::redis);
        });
    }
    if (run && names.size() != 1) {
        return make_error(ErrorCode::config,
                          "run takes one strategy; `hotcount-load compare` takes several");
    }
    for (const std::string& name : names) {
        HOTCOUNT_TRY_ASSIGN(const Strategy strategy, find_strategy(name));
        auto group = std::find_if(
            settings.groups.begin(), settings.groups.end(),
            [&](const StrategyGroup& one) { return one.trial.workload == strategy.workload; });
        if (group == settings.groups.end()) {
            group = settings.groups.insert(group, StrategyGroup{settings.trial, {}, name});
            group->trial.workload = strategy.workload;
            group->trial.strategy = name;
        }
        group->strategies.push_back(name);
    }
    return {};
}

Result<void> read_baseline(const Given& given, Settings& settings) {
    const auto found = given.find("baseline");
    if (found == given.end()) return {};
    std::vector<std::string> all;
    for (StrategyGroup& group : settings.groups) {
        for (const std::string& name : group.strategies) {
            all.push_back(name);
            if (name != found->second) continue;
            group.baseline = name;
            return {};
        }
    }
    return make_error(ErrorCode::config,
                      fmt::format("--baseline: '{}' is none of the strategies compared: {}",
                                  found->second, fmt::join(all, ", ")));
}

/// A figure that the workload has not is 0, and would meet what it is held to. `each`: a study holds
/// strategies of all workloads to one SLO.
Result<void> check_thresholds(const TrialSettings& trial, bool each) {
    const bool counts =
        trial.workload == WorkloadKind::votes || trial.workload == WorkloadKind::counters;
    for (const Threshold& threshold : trial.thresholds) {
        const std::string& figure = threshold.figure;
        std::string_view why;
        if (threshold.of_staleness() && !counts) {
            why = "reads are checked with --workload votes and counters alone";
        } else if (threshold.of_staleness() && trial.traffic.mix.read == 0) {
            why = "--mix has no reads";
        } else if (each) {
            continue;
        } else if (!counts && (figure == "double" || figure == "ghost")) {
            why = "the audit counts it with --workload votes and counters alone";
        } else if (figure == "lost" && trial.workload == WorkloadKind::limiter) {
            why = "the audit of limiters has no such number";
        }
        if (why.empty()) continue;
        return make_error(ErrorCode::config,
                          fmt::format("--threshold {}: {}", threshold.text, why));
    }
    return {};
}

Result<void> read_stores(const Given& given, Settings& settings) {
    TrialSettings& trial = settings.trial;
    HOTCOUNT_TRY(read_servers(given, settings));
    HOTCOUNT_TRY(read_tables(given, trial));
    HOTCOUNT_TRY(read(given, "life", parse_duration, trial.life));
    HOTCOUNT_TRY(read(given, "gate", parse_duration, trial.gate));
    if (given.contains("life") && trial.life < std::chrono::milliseconds{1}) {
        return make_error(ErrorCode::config, "--life takes 1ms or more");
    }
    HOTCOUNT_TRY(read(given, "rebuild-every", parse_duration, trial.rebuild_every));
    if (given.contains("rebuild-every") && trial.rebuild_every < std::chrono::milliseconds{1}) {
        return make_error(ErrorCode::config, "--rebuild-every takes 1ms or more");
    }
    trial.bystander = given.contains("bystander");
    HOTCOUNT_TRY(read_within(given, "batch", parse_count, 1, kMostBatch, trial.batch));
    HOTCOUNT_TRY(read_within(given, "slots", parse_count, 1, 10'000, trial.slots));
    HOTCOUNT_TRY(read_faults(given, settings));
    return read(given, "limit", Rate::parse, trial.limit);
}

/// Limiters take nothing back; if they are driven beside others, only their share is left out.
Result<void> fit_mix(const Given& given, const Settings& settings, TrialSettings& trial) {
    if (trial.workload != WorkloadKind::limiter || trial.traffic.mix.unvote == 0) return {};
    if (settings.groups.size() == 1) {
        return make_error(ErrorCode::config,
                          fmt::format("--mix {}: a limiter's hit cannot be taken back; leave "
                                      "unvote out",
                                      given.at("mix")));
    }
    trial.traffic.mix.unvote = 0;
    return {};
}

Result<Settings> interpret(Command command, const Given& given) {
    Settings settings = default_settings(command);
    for (const char* option : {"out", "html", "trace"}) {
        const auto found = given.find(option);
        if (found == given.end() || !found->second.empty()) continue;
        return make_error(ErrorCode::config, fmt::format("--{}: '' is no path", option));
    }
    settings.json = given.contains("json");
    settings.wide = given.contains("wide");
    settings.each = given.contains("each");
    settings.allow_debug = given.contains("allow-debug");
    if (command == Command::audit) {
        const auto folder = given.find("folder");
        if (folder == given.end()) {
            return make_error(ErrorCode::config,
                              "audit needs the folder of a run: hotcount-load audit DIR");
        }
        settings.audit_folder = folder->second;
        HOTCOUNT_TRY(read(given, "redis", parse_redis_url, settings.trial.redis_url));
        HOTCOUNT_TRY(read(given, "db", absolute_database_urls, settings.database_urls));
        return settings;
    }
    if (const auto out = given.find("out"); out != given.end()) settings.out = out->second;
    HOTCOUNT_TRY(read(given, "progress", parse_progress, settings.progress));
    const bool canonical = command == Command::canonical;
    HOTCOUNT_TRY(read_within(given, "rounds", parse_count, 1, kMostRounds, settings.rounds));
    settings.control = !given.contains("no-control");
    settings.find_best = !given.contains("no-best");
    HOTCOUNT_TRY(read_within(given, "control-slower", parse_share, 0.0, kMostSlower,
                             settings.control_slower));
    if (settings.control_slower > 0 && !settings.control) {
        return make_error(ErrorCode::config,
                          "--control-slower needs the control: leave out "
                          "--no-control");
    }
    if (const auto html = given.find("html"); html != given.end()) settings.html = html->second;
    if (canonical) {
        HOTCOUNT_TRY(read_traffic(given, settings.trial));
        HOTCOUNT_TRY(read_load(given, settings.trial));
        settings.trial.keep = settings.out.has_value();
        settings.trial.keep_series = settings.html.has_value();
        return settings;
    }
    HOTCOUNT_TRY(read_stores(given, settings));
    HOTCOUNT_TRY(read_groups(given, settings));
    HOTCOUNT_TRY(read_baseline(given, settings));
    HOTCOUNT_TRY(check_options(given, settings));
    for (StrategyGroup& group : settings.groups) {
        if (group.trial.workload != WorkloadKind::zset) group.trial.batch = 0;
        HOTCOUNT_TRY(read_traffic(given, group.trial));
        HOTCOUNT_TRY(fit_mix(given, settings, group.trial));
        HOTCOUNT_TRY(read_load(given, group.trial));
        HOTCOUNT_TRY(read_trace(given, group.trial));
        HOTCOUNT_TRY(place_faults(given, group.trial));
        HOTCOUNT_TRY(check_thresholds(group.trial, settings.each));
        group.trial.keep = settings.out.has_value();
        group.trial.keep_series = settings.html.has_value();
    }
    spread_over_databases(settings);
    settings.trial = settings.groups.front().trial;
    return settings;
}

std::string redacted_all(std::string_view urls) {
    std::vector<std::string> shown = split_urls(urls);
    for (std::string& url : shown) url = redacted(url);
    return fmt::format("{}", fmt::join(shown, ","));
}

/// The command line goes into reports and run folders.
std::string without_secret(const std::string& argument) {
    for (const std::string_view joined : {"--redis=", "--db="}) {
        if (!argument.starts_with(joined)) continue;
        return std::string{joined} + redacted_all(argument.substr(joined.size()));
    }
    const bool url = argument.find("://") != std::string::npos;
    return url && argument.find('@') != std::string::npos ? redacted_all(argument) : argument;
}

/// user:password@host or password@host, with or without a scheme; not memory@4, which a report has.
bool may_be_secret(const std::string& argument) {
    const std::size_t at = argument.rfind('@');
    if (at == std::string::npos) return false;
    const bool callers = argument.find_first_not_of("0123456789", at + 1) == std::string::npos;
    return argument.find(':') < at || !callers;
}
bool may_be_url(const std::string& argument) {
    return may_be_secret(argument) || argument.find("://") != std::string::npos;
}

/// The parts of an argument that a message may quote: "redis://h" of "-dredis://h" and of
/// "p99<redis://h,lost=0". Each begins behind a separator and ends before a comma or at the end; a
/// longer one stands before those in it.
std::vector<std::string> quoted_parts(const std::string& argument) {
    std::vector<std::string> parts;
    const bool is_short_option = argument.size() > 2 && argument[0] == '-' && argument[1] != '-';
    for (std::size_t from = 0; from < argument.size(); ++from) {
        constexpr std::string_view kSeparators = "=<>,:;/ ";
        if (from > 0 && kSeparators.find(argument[from - 1]) == std::string_view::npos &&
            !(is_short_option && from == 2)) {
            continue;
        }
        parts.push_back(argument.substr(from));
        parts.push_back(argument.substr(from, argument.find(',', from) - from));
    }
    return parts;
}

/// The message quotes the argument, which may be a URL in the wrong place.
template <class Hidden>
ExitMessage usage_error(std::string what, const std::vector<std::string>& arguments,
                        const Hidden& hidden) {
    for (const std::string& argument : arguments) {
        if (!hidden(argument)) continue;
        for (const std::string& text : quoted_parts(argument)) {
            if (!hidden(text)) continue;
            for (auto at = what.find(text); at != std::string::npos; at = what.find(text, at)) {
                what.replace(at, text.size(), "***");
                at += 3;
            }
        }
    }
    return {2, fmt::format("hotcount-load: {}\n", what)};
}

/// Command lines show in `ps`: a URL may stand in the environment or in a file instead.
Result<void> look_up_urls(Given& given) {
    for (const char* option : {"redis", "db"}) {
        const auto found = given.find(option);
        if (found == given.end()) continue;
        std::vector<std::string> urls = split_urls(found->second);
        for (std::string& each : urls) {
            auto url = look_up_url(each);
            if (!url) return about(("--" + std::string{option}).c_str(), url.error());
            each = std::move(url).value();
        }
        found->second = fmt::format("{}", fmt::join(urls, ","));
    }
    return {};
}

}  // namespace

std::variant<Settings, ExitMessage> parse_command_line(const std::vector<std::string>& arguments) {
    CLI::App app(
        "hotcount-load drives hotcount with many writers, measures it, and audits every count.\n"
        "Without a command: the canonical comparison, naive, slotted and batched votes on SQLite\n"
        "and counters in memory; where redis-server is installed, counters, limiters and sorted\n"
        "sets on a private one as well. It takes about a minute.\n"
        "Results go to stdout, progress and errors to stderr.\n"
        "Exit code: 0 passed; 1 a contract was broken or a threshold missed; 2 bad usage;\n"
        "3 inconclusive.",
        "hotcount-load");
    Given given;
    add_options(app, Command::canonical, given);
    app.set_version_flag("--version", fmt::format("hotcount-load {}", kVersion));
    const std::map<Command, CLI::App*> commands = {
        {Command::run, app.add_subcommand("run", "One strategy under one load")},
        {Command::compare,
         app.add_subcommand("compare", "Strategies side by side, in alternating rounds")},
        {Command::audit,
         app.add_subcommand("audit", "Audit a run folder again, also one whose run was killed")}};
    for (const auto& [command, subcommand] : commands) {
        add_options(*subcommand, command, given);
        if (command != Command::audit) subcommand->footer(examples_of(command) + strategy_lines());
    }
    app.require_subcommand(0, 1);

    Command command = Command::canonical;
    try {
        std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
        app.parse(std::move(reversed));
        for (const auto& [candidate, subcommand] : commands) {
            if (subcommand->parsed()) command = candidate;
        }
        if (const auto extras = app.remaining(true); !extras.empty()) {
            return usage_error(explain_extra(command, extras.front()), arguments, may_be_url);
        }
    } catch (const CLI::CallForHelp&) {
        const auto asked = std::find_if(commands.begin(), commands.end(),
                                        [](const auto& entry) { return entry.second->parsed(); });
        // The names of options have 30 columns.
        return ExitMessage{
            0, wrapped(asked == commands.end() ? app.help() : asked->second->help("hotcount-load"),
                       30)};
    } catch (const CLI::CallForVersion& version) {
        return ExitMessage{0, fmt::format("{}\n", version.what())};
    } catch (const CLI::ParseError& error) {
        return usage_error(error.what(), arguments, may_be_url);
    }
    if (auto looked_up = look_up_urls(given); !looked_up) {
        return usage_error(looked_up.error().message, arguments, may_be_secret);
    }
    auto settings = interpret(command, given);
    if (!settings) return usage_error(settings.error().message, arguments, may_be_secret);
    if (settings->each) settings->arguments = arguments;
    settings->command_line = {"hotcount-load"};
    for (const std::string& argument : arguments) {
        settings->command_line.push_back(without_secret(argument));
    }
    return std::move(settings).value();
}

}  // namespace hotcount::loadtest
