#include "cli.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <vector>

#include "load/strategy.hpp"

namespace hotcount::loadtest {
namespace {

// The commands that take an option.
constexpr unsigned kForCanonical = 1;
constexpr unsigned kForCompare = 2;
constexpr unsigned kForRun = 4;
constexpr unsigned kForLoads = kForCompare | kForRun;
constexpr unsigned kForRounds = kForCanonical | kForCompare;
constexpr unsigned kForAll = kForCanonical | kForLoads;

struct Option {
    unsigned commands;
    std::string_view flags;  ///< As CLI11 takes them; the last one is its long name.
    const char* value;       ///< The name of its value in --help; empty: a flag without a value.
    const char* help;

    constexpr std::string_view name() const { return flags.substr(flags.rfind("--") + 2); }
};

constexpr Option kOptions[] = {
    {kForLoads, "-s,--strategies", "NAMES",
     "Names, see below; gcra alone is redis/gcra where a Redis is given, else memory/gcra; "
     "compare also takes all: of --workload, else of every workload"},
    {kForRounds, "--rounds", "N",
     "Rounds per strategy, in drawn order; of 6 or more `hotcount load compare` can say what "
     "differs [{rounds}]"},
    {kForCompare, "--baseline", "NAME", "Strategy that the others are compared with [the first]"},
    {kForCompare, "--no-control", "",
     "Do not run the baseline a second time in each round; that control costs as much as one "
     "more strategy, and shows what is noise"},
    {kForCompare, "--control-slower", "SHARE",
     "Make the control slower on purpose, by 5% for example: would these rounds show such a "
     "difference? [0]"},
    {kForCompare, "--no-best", "",
     "Do not look for the baseline's best number of callers, in up to 11 trials of 300 ms, "
     "nor run it with them in each round; closed loop"},
    {kForLoads, "-r,--rate", "RATE",
     "Open loop: operations per second, which are votes, votes taken back and reads "
     "together, in the shares of --mix: 500, 5k"},
    {kForAll, "-d,--duration", "TIME",
     "Length of each load after its warm-up: 500ms, 10s, 2m [{duration}]"},
    {kForAll, "-w,--workers", "N", "Threads that call [{workers}]"},
    {kForLoads, "--in-flight", "N",
     "Calls under way at once where a strategy's name ends in /async [1000]"},
    {kForLoads, "--arrival", "KIND",
     "poisson, uniform, burst:10x,2s/20s (ten times the rate for 2 s in the middle of each "
     "20 s) or stairs:1x,2x,4x/10s (all with -r), or closed [poisson with -r, else closed]"},
    {kForLoads, "--trace", "FILE",
     "Send what is recorded in this CSV file, at its own times: time in "
     "seconds,item,user,value (1 a vote, 0 takes it back, empty a read)"},
    {kForLoads, "--workload", "NAME",
     "votes (SQL), counters, limiter or zset [as the strategies named, else votes]"},
    {kForLoads, "--redis", "URL",
     "Server for strategies on Redis: redis:// rediss:// valkey:// unix:///path, or env:NAME "
     "or file:PATH that hold it, which `ps` does not show; the run's keys begin with "
     "hotcount-load: and are removed, but with --out"},
    {kForLoads, "--managed", "SERVERS",
     "redis, postgres, mariadb, mysql: start private servers for the run; Redis without "
     "persistence (but with --fault ...redis.kill9), the databases with full durability. "
     "sentinel: a primary, two replicas, three Sentinels; redis-cluster: three primaries "
     "with a replica each; postgres-pair: a primary and a synchronous standby; galera: three "
     "nodes of MariaDB, votes on all of them. compare takes several databases, and drives "
     "what is on SQL on each"},
    {kForLoads, "--life", "TIME",
     "Time to live of counters that have one: 50ms; short, so that keys expire under the "
     "load [longer than the run]"},
    {kForLoads, "--gate", "TIME",
     "zset: an upsert needs a TTL above this, for script, watch and ttl_gate [ttl_gate 10s, "
     "else 0]"},
    {kForLoads, "--batch", "N",
     "zset: upserts in one call, 1 to 1000; --workers such calls are under way [each alone]"},
    {kForLoads, "--slots", "N", "slots/...: rows that a key spreads over, 1 to 10000 [100]"},
    {kForLoads, "--processes", "N",
     "Callers in so many processes of their own, on a server or a file [in this one]"},
    {kForLoads, "--kill-every", "TIME",
     "kill -9 one of the --processes so often, and fork another: 200ms [never]"},
    {kForLoads, "--stall", "TIME",
     "Stop one of the --processes for so long, again and again: 100ms [never]"},
    {kForLoads, "--outage", "TIME",
     "Stop the Redis of --managed redis for so long, from a third of the load on [never]"},
    {kForLoads, "--fault", "SPEC",
     "What happens to the servers of --managed, and when, from the end of the warm-up on: "
     "3s:redis.kill9+1s kills the Redis with SIGKILL and starts it a second later on what it "
     "left (with appendfsync always); 8s:redis.pause+500ms stops it; db.kill9 and db.pause "
     "do so to the database. Of sentinel, redis-cluster and postgres-pair it is the primary, "
     "of galera a node; 5s:redis.failover and db.failover replace it as planned, "
     "5s:db.cut+2s and, of redis-cluster, 5s:redis.cut+8s cut it off, 5s:redis.reshard=1000 "
     "moves slots; several with commas [none]"},
    {kForLoads, "--rebuild-every", "TIME",
     "zset, script: build one of the sets that outlive the load anew so often: 5ms [never]"},
    {kForLoads, "--bystander", "",
     "Time one more client that asks the Redis for a small thing every millisecond"},
    {kForLoads, "--limit", "RATE", "What limiters allow each item: 100/s, 100/s burst 20 [100/s]"},
    {kForLoads, "--db", "URL",
     "Where votes are: sqlite:///path [a file in the run folder], compare makes one beside "
     "it per round; or postgresql://, mariadb:// or mysql://, or env:NAME or file:PATH that "
     "hold it, where the run makes tables of its own and takes them away, but with --out; "
     "compare takes several, with commas, and others that --managed starts"},
    {kForLoads, "--item-table", "NAME",
     "Tables of your own, in a --db that is a copy: the first --items rows are voted on by "
     "the users 1 to N of --users, who must exist where they are a foreign key. The vote "
     "table must be empty and the counts 0. After the audit the votes of these users on "
     "these items are deleted, and what create_tables() has made is dropped; a run that is "
     "killed leaves both [item; the run makes its own]"},
    {kForLoads, "--item-id", "NAME", "Column of its key, integers [id]"},
    {kForLoads, "--item-count", "NAME", "Column of its count [vote_count]"},
    {kForLoads, "--vote-table", "NAME", "Your table of votes [vote]"},
    {kForLoads, "--vote-item", "NAME", "Column of the item [item_id]"},
    {kForLoads, "--vote-user", "NAME", "Column of the user, integers [user_id]"},
    {kForLoads, "--vote-value", "NAME", "Column of the vote's value [val]"},
    {kForLoads, "--vote-previous", "NAME", "Column of the value before [prev]"},
    {kForLoads, "--vote-version", "NAME", "Column of the vote's version [version]"},
    {kForAll, "--items", "N", "How many items are voted on [10k, zset 1k]"},
    {kForAll, "--zipf", "EXPONENT", "How uneven their popularity is; 0: not at all [0.99]"},
    {kForAll, "--users", "N", "How many users vote [1M, zset 1k]"},
    {kForAll, "--mix", "SHARES",
     "Shares of the operations [vote=80,unvote=5,read=15]; limiter: hit and look, unvote 0; "
     "zset: upsert, remove and top"},
    {kForAll, "--dup", "SHARE", "Share of the votes that is resent on purpose [0.01]"},
    {kForAll, "--seed", "N", "Same seed, same traffic [1]"},
    {kForAll, "--warmup", "TIME", "Load before the measurement [{warmup}]"},
    {kForAll, "--timeout", "TIME", "Time limit of each call [{timeout}]"},
    {kForAll, "--max-errors", "SHARE",
     "Share of the calls that may fail or stay unanswered; above it the run is inconclusive "
     "[0.1%; with --fault, --outage, --kill-every or --stall 100%]"},
    {kForRun, "--threshold", "TERM",
     "End with exit code 1 unless it holds: p99<50ms, max<1s, stale.p99<1s, err<0.1%, "
     "rate>=1000, lost==0 (not counting what a failover may lose); several with commas, or "
     "several times"},
    {kForLoads, "--max-ops", "N", "Most operations of one load [20M]"},
    {kForAll, "--out", "DIR", "Folder to keep for `audit`; new or empty [a temporary one]"},
    {kForAll, "--html", "FILE",
     "Write a page of the charts; it needs the Python package's extra hotcount[report]"},
    {kForAll, "--progress", "KIND", "On stderr: line, ndjson or none [line]"},
    {kForAll, "--wide", "", "Print all columns, contracts and reasons, in long lines"},
    {kForAll, "--json", "", "Print JSON (schema hotcount-load/1), not tables"},
    {kForRun, "--each", "",
     "Run once for each line on stdin, {{\"name\": NAME, \"options\": [...]}}, with these "
     "options besides; a document a line on stdout. The private servers and --out are those "
     "of all runs. `hotcount load` drives its studies so"},
    {kForAll, "--allow-debug", "", "Report even from a debug build: the figures mislead"},
};

bool knows(Command command, const Option& option) {
    if (command == Command::audit) {
        return option.name() == "json" || option.name() == "redis" || option.name() == "db";
    }
    const unsigned mask = command == Command::canonical ? kForCanonical
                          : command == Command::compare ? kForCompare
                                                        : kForRun;
    return (option.commands & mask) != 0;
}

/// With the defaults of the command that is asked.
std::string help_of(const char* help, Command command) {
    const Settings settings = default_settings(command);
    const TrialSettings& trial = settings.trial;
    return fmt::format(fmt::runtime(help), fmt::arg("rounds", settings.rounds),
                       fmt::arg("duration", format_duration(trial.duration)),
                       fmt::arg("warmup", format_duration(trial.warmup)),
                       fmt::arg("timeout", format_duration(trial.timeout)),
                       fmt::arg("workers", trial.workers));
}

std::string valid_options(Command command) {
    std::vector<std::string> flags;
    for (const Option& option : kOptions) {
        if (knows(command, option)) flags.emplace_back(option.flags);
    }
    return fmt::format("{}", fmt::join(flags, " "));
}

/// Studies are commands of the Python package.
bool is_study(std::string_view name) {
    return name == "search" || name == "sweep" || name == "scale" || name == "calibrate" ||
           name == "diff";
}

}  // namespace

Settings default_settings(Command command) {
    using std::chrono::milliseconds;
    Settings settings;
    settings.command = command;
    TrialSettings& trial = settings.trial;
    trial.timeout = std::chrono::seconds{5};
    if (command == Command::run) return settings;
    trial.workers = 64;
    trial.warmup = milliseconds{250};
    trial.duration = milliseconds{command == Command::compare ? 1000 : 800};
    // As many as a minute has room for.
    if (command == Command::canonical) settings.rounds = 5;
    return settings;
}

void add_options(CLI::App& app, Command command, Given& given) {
    app.allow_extras();
    app.set_help_flag("-h,--help", "Print this and exit");
    const auto add = [&](const Option& option) {
        const std::string name{option.name()};
        const std::string flags{option.flags};
        const std::string help = help_of(option.help, command);
        if (*option.value != '\0') {
            app.add_option_function<std::string>(
                   flags,
                   [&given, name](std::string text) {
                       std::replace(text.begin(), text.end(), '\n', ',');  // Between joined ones.
                       given[name] = std::move(text);
                   },
                   help)
                // The last one counts, so that a script's options can be overridden; all thresholds do.
                ->multi_option_policy(name == "threshold" ? CLI::MultiOptionPolicy::Join
                                                          : CLI::MultiOptionPolicy::TakeLast)
                ->type_name(option.value);
        } else {
            app.add_flag_callback(
                flags, [&given, name] { given[name] = ""; }, help);
        }
    };
    for (const Option& option : kOptions) {
        if (knows(command, option)) add(option);
    }
    if (command == Command::audit) {
        app.add_option_function<std::string>(
               "folder", [&given](const std::string& text) { given["folder"] = text; },
               "A folder that --out named")
            ->type_name("DIR");
    }
}

std::string explain_extra(Command command, const std::string& extra) {
    const std::string name = extra.substr(0, extra.find('='));
    if (is_study(name)) {
        return fmt::format(
            "'{0}' is gone: it is `hotcount load {0}`, of the Python package (extra `report`)",
            name);
    }
    const std::string where = command == Command::canonical
                                  ? std::string{"hotcount-load"}
                                  : fmt::format("hotcount-load {}", to_string(command));
    if (extra.starts_with("-")) {
        return fmt::format("unknown option '{}'; {} takes: {} -h,--help", extra, where,
                           valid_options(command));
    }
    if (command == Command::canonical) {
        return fmt::format(
            "unknown command '{}'; the commands are: run, compare, audit, or none for the "
            "canonical "
            "comparison",
            extra);
    }
    return fmt::format("unexpected argument '{}'; {} takes: {} -h,--help", extra, where,
                       valid_options(command));
}

std::string examples_of(Command command) {
    if (command == Command::run) {
        return "Examples:\n"
               "  hotcount-load run -s batched -d 10s\n"
               "  hotcount-load run -s batched -r 1000 --threshold 'p99<50ms,lost==0' --db URL\n"
               "  hotcount-load run -s redis/retry --managed redis --outage 3s\n"
               "  hotcount-load run -s batched --db sqlite:///copy.db --item-table post \\\n"
               "      --item-count likes --vote-table post_like --vote-item post_id\n\n";
    }
    return "Examples:\n"
           "  hotcount-load compare -s naive,batched --managed postgres\n"
           "  hotcount-load compare -s all --workload limiter --managed redis --rounds 3\n"
           "  hotcount-load compare -s naive,batched --out DIR; hotcount report DIR -o "
           "page.html\n\n";
}

std::string strategy_lines() {
    std::string text = "Strategies:";
    std::string_view workload;
    for (const Strategy& strategy : all_strategies()) {
        if (to_string(strategy.workload) != workload) {
            workload = to_string(strategy.workload);
            text += fmt::format("\n  {:<10}", workload);
        }
        text += " " + strategy.name;
    }
    text +=
        "\n  exec:PROGRAM ARGUMENTS (votes): a driver of your own, see "
        "docs/reference/load-drivers.md";
    return text;
}

}  // namespace hotcount::loadtest
