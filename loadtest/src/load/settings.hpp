// What the user may choose, and the text forms that durations, counts and mixes take.
//
// Each parser returns an error that says what it was given and what it takes; the names of the
// strategies and of everything else one can misspell are listed there too.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <hotcount/limiter.hpp>
#include <hotcount/result.hpp>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pacer.hpp"
#include "strategy.hpp"
#include "workload.hpp"

namespace hotcount::loadtest {

enum class Command : std::uint8_t {
    canonical,
    compare,
    run,
    audit,
};
std::string_view to_string(Command command);

/// The private servers that this program can start: targets/managed_server.hpp, and groups of which
/// one server replaces another: targets/managed_group.hpp.
enum class ServerKind : std::uint8_t {
    redis,
    postgres,
    mariadb,
    mysql,
    sentinel,       ///< A primary, replicas, and the Sentinels that watch them.
    redis_cluster,  ///< Three primaries with a replica each.
    postgres_pair,  ///< A primary and its streaming standby.
};
std::string_view to_string(ServerKind kind);
constexpr bool is_redis(ServerKind kind) {
    return kind == ServerKind::redis || kind == ServerKind::sentinel ||
           kind == ServerKind::redis_cluster;
}
/// Several servers, none of which is kept for a later audit.
constexpr bool is_group(ServerKind kind) { return kind >= ServerKind::sentinel; }

/// What can be done to a private server in the middle of a load: targets/beside_load.hpp. `redis` is
/// the Redis, or the primary of a group of them; `db` the database server, or the primary of a pair.
enum class FaultKind : std::uint8_t {
    redis_pause,     ///< SIGSTOP, and SIGCONT.
    redis_kill9,     ///< SIGKILL, and a start on what it left.
    redis_failover,  ///< A replica takes over as planned.
    redis_reshard,   ///< Slots move from one primary of a cluster to the next.
    db_pause,        ///< As for a Redis.
    db_kill9,        ///< SIGKILL; then a start on what it left, or the standby is promoted.
    db_failover,     ///< The primary ends in order, and its standby is promoted.
    db_cut,          ///< The primary is silent, then it is killed and its standby is promoted.
};
std::string_view to_string(FaultKind kind);
constexpr bool is_of_database(FaultKind kind) { return kind >= FaultKind::db_pause; }
constexpr bool is_kill(FaultKind kind) {
    return kind == FaultKind::redis_kill9 || kind == FaultKind::db_kill9;
}
/// Those that begin and end by themselves: nobody says how long they last.
constexpr bool lasts_by_itself(FaultKind kind) {
    return kind == FaultKind::redis_failover || kind == FaultKind::redis_reshard ||
           kind == FaultKind::db_failover;
}
/// Whether these private servers can have this fault.
bool can_have(ServerKind server, FaultKind fault);

struct Fault {
    Duration at;  ///< From the end of the warm-up on.
    FaultKind kind;
    Duration lasts;          ///< How long the server is away; 0 for those that last by themselves.
    std::uint32_t slots{0};  ///< How many redis.reshard moves.
    bool operator==(const Fault&) const = default;
};

enum class ProgressMode : std::uint8_t { line, ndjson, none };
std::string_view to_string(ProgressMode mode);

/// A bound that `run` is held to: p99<50ms, lost==0, err<=0.1%, rate>=1000.
struct Threshold {
    std::string text{};    ///< As it was given.
    std::string figure{};  ///< p50, p99.9, max; stale. before them; err, rate, lost, double, ghost.
    std::string bound{};   ///< < <= == >= >
    double limit{0};       ///< Nanoseconds, a share, operations per second, or a number of votes.

    bool is_met_by(double value) const;
    /// The percentile of a time: 0.99. 0: the figure is none.
    double quantile() const;
    bool of_staleness() const { return figure.starts_with("stale."); }
};

/// What one trial needs to know. Defaults are those of `run`.
struct TrialSettings {
    WorkloadKind workload{WorkloadKind::votes};
    std::string strategy{"batched"};
    Arrival arrival{Arrival::closed};
    double rate_per_s{0};  ///< 0 in the closed loop.
    RateProfile profile{};
    std::uint32_t workers{32};
    /// Calls under way at once, if the strategy is driven by completions.
    std::uint32_t in_flight{1000};
    Duration warmup{std::chrono::seconds{1}};
    Duration duration{std::chrono::seconds{10}};
    TrafficSettings traffic{};
    Duration timeout{std::chrono::seconds{1}};
    std::uint64_t max_operations{20'000'000};
    std::vector<Threshold> thresholds{};
    /// Tables and columns of the user's own, by the names of their options: item-table, vote-user.
    /// None: the run makes its own tables.
    std::map<std::string, std::string> tables{};
    /// Of the calls in the window, the share that may fail or stay without an answer: above it the
    /// run is inconclusive.
    double max_errors{0.001};
    /// Empty: a file of the trial's own in its folder. Otherwise an absolute SQLite URL, or a
    /// server's, which may hold a password: redacted() is what may be shown.
    std::string database_url{};
    bool managed_database{false};  ///< That server is this program's own and goes with it.
    /// For strategies on Redis. It may hold a password: redacted() is what may be shown.
    std::string redis_url{};
    bool managed_redis{false};  ///< That server is this program's own and goes with it.
    /// Before every key, and every table on a server, of the run, so that it meets no others. Empty:
    /// run_trial() makes one.
    std::string key_prefix{};
    /// The run is kept for a later audit: keys and tables stay on a server that was there before.
    /// What a private Redis holds goes into the folder: targets/redis_dump.cpp.
    bool keep{false};
    /// How it went second by second is kept too: a page is drawn from it. `keep` implies that.
    bool keep_series{false};
    /// The time to live of counters that have one. 0: longer than the run.
    Duration life{0};
    /// Of sorted sets, for the methods that have one. None: the library's own.
    std::optional<Duration> gate{};
    /// Upserts in one call; 0: each alone. The closed loop then has workers * batch under way.
    std::uint32_t batch{0};
    /// How many rows a slotted counter spreads a key over.
    std::int64_t slots{100};
    /// Callers in processes of their own, which are killed or stopped: processes.hpp. 0: threads of
    /// this one.
    std::uint32_t processes{0};
    Duration kill_every{0};
    Duration stall{0};
    /// What is done to the managed servers, in order of time, one after another.
    std::vector<Fault> faults{};
    /// Between two builds of sets that outlive the load, beside their upserts. 0: none is built.
    Duration rebuild_every{0};
    /// Another client asks the Redis for a small thing every millisecond, and is timed.
    bool bystander{false};
    /// The share of their time that callers lose on purpose. 0: none.
    double slower{0};
    /// What the limiters allow each key.
    Rate limit{.limit = 100, .period = std::chrono::seconds{1}, .burst = 100};

    /// Those of a private group go with its servers.
    bool leaves_keys() const;
    bool leaves_tables() const { return keep && !managed_database; }
    /// Calls fail and come late on purpose.
    bool disturbed() const {
        return !faults.empty() || kill_every > Duration{0} || stall > Duration{0};
    }
    /// The private Redis is to be killed: each write is on its disk before it is answered.
    bool kills_redis() const {
        return std::any_of(faults.begin(), faults.end(),
                           [](const Fault& fault) { return fault.kind == FaultKind::redis_kill9; });
    }
};

/// Whether operations are due by a schedule, and wait for no caller.
inline bool is_open(const TrialSettings& settings) { return settings.arrival != Arrival::closed; }

/// One of several databases that a comparison takes.
struct Database {
    std::string label{};  ///< For people and folders: postgres, mariadb, mysql, sqlite.
    std::optional<ServerKind> managed{};
    std::string url{};  ///< Of one that is there.
};

/// The strategies of one workload, under one load.
struct StrategyGroup {
    TrialSettings trial{};  ///< But for the strategy.
    std::vector<std::string> strategies{};
    std::string baseline{};
    /// Of several databases, the one that these strategies are on. None: there is one at most, or they
    /// use none.
    std::optional<Database> database{};
};

struct Settings {
    Command command{Command::canonical};
    /// One for each workload; `run` has one of one strategy.
    std::vector<StrategyGroup> groups{};
    std::uint32_t rounds{8};
    bool control{true};        ///< compare: the baseline runs a second time.
    double control_slower{0};  ///< ... slower on purpose, by this share.
    bool find_best{true};      ///< compare: the baseline with its best number of callers as well.
    TrialSettings trial{};     ///< Of the first group; the canonical comparison's own.
    std::vector<ServerKind> managed{};  ///< Private servers to start.
    std::vector<Database> databases{};  ///< compare: those that there are, if they are several.
    std::vector<std::string> database_urls{};     ///< audit: one of these may be a run's.
    std::optional<std::filesystem::path> out{};   ///< None: a temporary folder.
    std::optional<std::filesystem::path> html{};  ///< The page to write.
    std::filesystem::path audit_folder{};
    bool json{false};
    bool wide{false};  ///< All columns, whatever the width of the terminal.
    bool each{false};  ///< run: once for each line on stdin, with these options and the line's.
    std::vector<std::string> arguments{};  ///< each: as they were given, secrets included.
    ProgressMode progress{ProgressMode::line};
    bool allow_debug{false};
    std::vector<std::string> command_line{};
};

/// Sets are made one by one before the load, and few users write each member more than once: at
/// most 1,000 of both.
TrafficSettings for_sets(TrafficSettings traffic);

/// Limits that keep a slip of the finger from filling a disk or starting a million threads.
inline constexpr std::uint32_t kMostWorkers = 1024;
inline constexpr std::uint32_t kMostInFlight = 100'000;
inline constexpr std::uint32_t kMostBatch = 1000;
inline constexpr std::uint32_t kMostProcesses = 64;
inline constexpr std::uint32_t kMostRounds = 1000;
inline constexpr double kMostSlower = 0.9;
inline constexpr std::uint64_t kMostItems = 50'000'000;
inline constexpr std::uint64_t kMostUsers = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kMostOperations = 1'000'000'000;

/// 250us, 500ms, 10s, 1.5m, 2h; a plain number is seconds. Not negative, at most 30 days.
Result<Duration> parse_duration(std::string_view text);
/// 1000, 10k, 1.5M, 2G: a whole number after all.
Result<std::uint64_t> parse_count(std::string_view text);
/// As a count, but may have a fraction: 0.5, 2.5k. Positive.
Result<double> parse_rate(std::string_view text);
/// 0.1%, or as a number 0.001; from 0 to 1.
Result<double> parse_share(std::string_view text);
/// vote=80,unvote=5,read=15, each word once; what is left out is 0.
Result<Mix> parse_mix(std::string_view text);
/// p99<50ms,lost==0: one or several, with commas between them.
Result<std::vector<Threshold>> parse_thresholds(std::string_view text);
Result<Arrival> parse_arrival(std::string_view text);
/// How the rate of a schedule changes, for --arrival. burst:10x,2s/20s: ten times the rate for 2 s in
/// the middle of each 20 s. stairs:1x,2x,4x/10s: each factor for 10 s, then from the first again. None
/// if the text begins with neither.
Result<std::optional<RateProfile>> parse_profile(std::string_view text);
Result<ProgressMode> parse_progress(std::string_view text);
/// 3s:redis.kill9+1s,8s:db.pause+500ms: when, what, and how long it lasts; returned in order of time.
/// Of two, the second begins after the first one has ended. Without a time at the end:
/// 5s:redis.failover and 5s:redis.reshard=1000, with the number of slots.
Result<std::vector<Fault>> parse_faults(std::string_view text);
/// As parse_faults takes them.
std::string format_faults(const std::vector<Fault>& faults);
/// The servers that --managed names: redis, postgres, sentinel, ..., each once.
Result<std::vector<ServerKind>> parse_managed(std::string_view text);
/// A URL as it is, or what env:NAME or file:PATH (its first line) holds.
Result<std::string> look_up_url(const std::string& text);
/// A URL that the library's Redis client takes, unchanged.
Result<std::string> parse_redis_url(std::string_view text);
/// Several URLs with commas between them. A comma within a URL, as between PostgreSQL's hosts, does
/// not end it: what follows it begins with no scheme.
std::vector<std::string> split_urls(std::string_view text);
/// The URL with *** for its password, and without the values of its options.
std::string redacted(std::string_view url);
/// The URL as it is if it has no password, and otherwise redacted: then it cannot be opened again.
std::string without_password(const std::string& url);
bool is_redacted(const std::string& url);
/// The URL with its file's path made absolute, so that a later audit finds it from any folder; a
/// server's URL as it is.
Result<std::string> absolute_database_url(std::string_view url);
/// Several of them.
Result<std::vector<std::string>> absolute_database_urls(std::string_view text);
/// Whether the URL of a Redis names servers that replace each other: Sentinel's, or a cluster's.
bool names_a_group(std::string_view url);
/// Whether the URL names a database server, where runs share the tables' name space.
bool on_database_server(const std::string& url);
/// The URL of a file.
std::string sqlite_url(const std::filesystem::path& path);

/// 2m, 1.5s, 300ms, 250us: as parse_duration takes it.
std::string format_duration(Duration duration);

}  // namespace hotcount::loadtest
