// The settings of hotcount-load, and the parsers of their text forms: durations, counts, mixes ...
//
// A parser's error quotes the text and lists the valid forms or names.
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
    galera,         ///< Three nodes of a MariaDB Galera cluster.
};
std::string_view to_string(ServerKind kind);
constexpr bool is_redis(ServerKind kind) {
    return kind == ServerKind::redis || kind == ServerKind::sentinel ||
           kind == ServerKind::redis_cluster;
}
/// Several servers, none of which is kept for a later audit.
constexpr bool is_group(ServerKind kind) { return kind >= ServerKind::sentinel; }

/// Faults of a private server during a load: targets/beside_load.hpp. `redis` is the Redis, or the
/// primary of a group of them; `db` the database server, the primary of a pair, or a node of Galera.
enum class FaultKind : std::uint8_t {
    redis_pause,     ///< SIGSTOP, and SIGCONT.
    redis_kill9,     ///< SIGKILL, and a restart with its data.
    redis_failover,  ///< A planned failover to a replica.
    redis_reshard,   ///< Slots move from one primary of a cluster to the next.
    redis_cut,       ///< Clients reach a primary of a cluster, and the other nodes do not.
    db_pause,        ///< SIGSTOP, and SIGCONT.
    db_kill9,        ///< SIGKILL; then a restart with its data, or the standby is promoted.
    db_failover,  ///< The primary shuts down cleanly, and its standby is promoted; a node starts again.
    db_cut,  ///< A node is cut off from the others; a primary is silent, and its standby promoted.
};
std::string_view to_string(FaultKind kind);
constexpr bool is_of_database(FaultKind kind) { return kind >= FaultKind::db_pause; }
constexpr bool is_kill(FaultKind kind) {
    return kind == FaultKind::redis_kill9 || kind == FaultKind::db_kill9;
}
/// True for faults that end by themselves, so that no duration is given.
constexpr bool lasts_by_itself(FaultKind kind) {
    return kind == FaultKind::redis_failover || kind == FaultKind::redis_reshard ||
           kind == FaultKind::db_failover;
}
/// True if private servers of this kind can have this fault.
bool can_have(ServerKind server, FaultKind fault);

struct Fault {
    Duration at;  ///< Since the end of the warm-up.
    FaultKind kind;
    Duration lasts;          ///< How long the server is away; 0 if lasts_by_itself().
    std::uint32_t slots{0};  ///< The number of slots that redis.reshard moves.
    bool operator==(const Fault&) const = default;
};

enum class ProgressMode : std::uint8_t { line, ndjson, none };
std::string_view to_string(ProgressMode mode);

/// A bound on a result of `run`: p99<50ms, lost==0, err<=0.1%, rate>=1000.
struct Threshold {
    std::string text{};    ///< As typed.
    std::string figure{};  ///< p50, p99.9, max, stale.p50 ..., err, rate, lost, double, ghost.
    std::string bound{};   ///< < <= == >= >
    double limit{0};       ///< Nanoseconds, a share, operations per second, or a number of votes.

    bool is_met_by(double value) const;
    /// The quantile of a time, such as 0.99; 0 for other figures.
    double quantile() const;
    bool of_staleness() const { return figure.starts_with("stale."); }
};

/// The settings of one trial. Defaults are those of `run`.
struct TrialSettings {
    WorkloadKind workload{WorkloadKind::votes};
    std::string strategy{"batched"};
    Arrival arrival{Arrival::closed};
    double rate_per_s{0};  ///< 0 in the closed loop.
    RateProfile profile{};
    std::uint32_t workers{32};
    /// Calls in flight, if the strategy is driven by completions.
    std::uint32_t in_flight{1000};
    Duration warmup{std::chrono::seconds{1}};
    Duration duration{std::chrono::seconds{10}};
    TrafficSettings traffic{};
    Duration timeout{std::chrono::seconds{1}};
    std::uint64_t max_operations{20'000'000};
    std::vector<Threshold> thresholds{};
    /// Tables and columns of the user's own, by the names of their options: item-table, vote-user.
    /// Empty: the run makes its own tables.
    std::map<std::string, std::string> tables{};
    /// The share of calls in the window that may fail or stay unanswered; above it the run is
    /// inconclusive.
    double max_errors{0.001};
    /// Empty: a SQLite file in the trial's folder. Otherwise an absolute SQLite URL, or a server's,
    /// which may contain a password: show only redacted().
    std::string database_url{};
    bool managed_database{false};  ///< This program has started the server and stops it.
    /// For strategies on Redis. May contain a password: show only redacted().
    std::string redis_url{};
    bool managed_redis{false};  ///< This program has started the server and stops it.
    /// Prefix of every key, and of every table on a server, so that runs do not meet. Empty:
    /// run_trial() makes one.
    std::string key_prefix{};
    /// Keep the run for a later audit: keys and tables stay on a server that this program has not
    /// started. The keys of a private Redis are saved in the folder: targets/redis_dump.cpp.
    bool keep{false};
    /// Keep the figures of each second too, for charts. `keep` implies this.
    bool keep_series{false};
    /// The time to live of counters that have one. 0: longer than the run.
    Duration life{0};
    /// The gate of sorted sets, for methods that have one. nullopt: the library's default.
    std::optional<Duration> gate{};
    /// Upserts in one call; 0: each alone. The closed loop then has workers * batch in flight.
    std::uint32_t batch{0};
    /// Rows over which a slotted counter spreads a key.
    std::int64_t slots{100};
    /// Processes of callers, which are killed or stopped: processes.hpp. 0: threads of this process.
    std::uint32_t processes{0};
    Duration kill_every{0};
    Duration stall{0};
    /// Faults of the managed servers, in order of time, one after another.
    std::vector<Fault> faults{};
    /// Pause between two rebuilds of sets beside their upserts. 0: no rebuilds.
    Duration rebuild_every{0};
    /// Another client sends the Redis a small command every millisecond, and its latency is measured.
    bool bystander{false};
    /// The share of their time that callers waste, for a slower control. 0: no delay.
    double slower{0};
    /// The limiters' rate for each key.
    Rate limit{.limit = 100, .period = std::chrono::seconds{1}, .burst = 100};

    /// True if keys remain on a server after the run.
    bool leaves_keys() const;
    bool leaves_tables() const { return keep && !managed_database; }
    /// True if faults, kills or stalls make calls fail or late.
    bool disturbed() const {
        return !faults.empty() || kill_every > Duration{0} || stall > Duration{0};
    }
    /// True if the private Redis is killed: it must then sync each write to disk before its reply.
    bool kills_redis() const {
        return std::any_of(faults.begin(), faults.end(),
                           [](const Fault& fault) { return fault.kind == FaultKind::redis_kill9; });
    }
};

/// True if operations are due by a schedule, independent of callers.
inline bool is_open(const TrialSettings& settings) { return settings.arrival != Arrival::closed; }

/// One of several databases of a comparison.
struct Database {
    std::string label{};  ///< For people and folders: postgres, mariadb, mysql, sqlite.
    std::optional<ServerKind> managed{};
    std::string url{};  ///< Without `managed`: the URL of an existing database.
};

/// The strategies of one workload, under one load.
struct StrategyGroup {
    TrialSettings trial{};  ///< All settings but the strategy.
    std::vector<std::string> strategies{};
    std::string baseline{};
    /// The database of these strategies if there are several; nullopt if there is one, or if they
    /// use no database.
    std::optional<Database> database{};
};

struct Settings {
    Command command{Command::canonical};
    /// One group for each workload; `run` has one group with one strategy.
    std::vector<StrategyGroup> groups{};
    std::uint32_t rounds{8};
    bool control{true};        ///< compare: run the baseline a second time.
    double control_slower{0};  ///< compare: make that control slower by this share.
    bool find_best{true};      ///< compare: also run the baseline with its best number of callers.
    TrialSettings trial{};     ///< Of the first group, or of the canonical comparison.
    std::vector<ServerKind> managed{};            ///< Private servers to start.
    std::vector<Database> databases{};            ///< compare: all databases, if there are several.
    std::vector<std::string> database_urls{};     ///< audit: candidates for the run's database.
    std::optional<std::filesystem::path> out{};   ///< nullopt: a temporary folder.
    std::optional<std::filesystem::path> html{};  ///< The page to write.
    std::filesystem::path audit_folder{};
    bool json{false};
    bool wide{false};  ///< All columns, whatever the width of the terminal.
    bool each{false};  ///< run: one run for each line on stdin, whose options are added to these.
    std::vector<std::string> arguments{};  ///< each: the arguments as typed, with secrets.
    ProgressMode progress{ProgressMode::line};
    bool allow_debug{false};
    std::vector<std::string> command_line{};
};

/// Limits items and users to 1,000 each: sets are made one by one before the load, and members must
/// be written more than once.
TrafficSettings for_sets(TrafficSettings traffic);

/// Limits that keep a typing error from filling a disk or starting a million threads.
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
/// 1000, 10k, 1.5M, 2G. The value must be a whole number.
Result<std::uint64_t> parse_count(std::string_view text);
/// As parse_count(), but a fraction is allowed: 0.5, 2.5k. Positive.
Result<double> parse_rate(std::string_view text);
/// 0.1%, or as a number 0.001; from 0 to 1.
Result<double> parse_share(std::string_view text);
/// vote=80,unvote=5,read=15, each word at most once; the default of each is 0.
Result<Mix> parse_mix(std::string_view text);
/// p99<50ms,lost==0: one or several, separated by commas.
Result<std::vector<Threshold>> parse_thresholds(std::string_view text);
Result<Arrival> parse_arrival(std::string_view text);
/// A varying rate for --arrival. burst:10x,2s/20s: ten times the rate for 2 s in the middle of each
/// 20 s. stairs:1x,2x,4x/10s: each factor for 10 s, then from the first again. nullopt if the text
/// begins with neither.
Result<std::optional<RateProfile>> parse_profile(std::string_view text);
Result<ProgressMode> parse_progress(std::string_view text);
/// 3s:redis.kill9+1s,8s:db.pause+500ms: time, fault and duration; returned in order of time. Faults
/// must not overlap. Faults that end by themselves have no duration: 5s:redis.failover, and
/// 5s:redis.reshard=1000 with the number of slots.
Result<std::vector<Fault>> parse_faults(std::string_view text);
/// The text form that parse_faults() reads.
std::string format_faults(const std::vector<Fault>& faults);
/// The servers that --managed names: redis, postgres, sentinel, ..., each once.
Result<std::vector<ServerKind>> parse_managed(std::string_view text);
/// Returns a URL unchanged, or the value of env:NAME or the first line of file:PATH.
Result<std::string> look_up_url(const std::string& text);
/// Returns the URL unchanged if the library's Redis client accepts it.
Result<std::string> parse_redis_url(std::string_view text);
/// Splits URLs at commas. A comma within a URL, as between PostgreSQL's hosts, is not followed by a
/// scheme and does not end the URL.
std::vector<std::string> split_urls(std::string_view text);
/// The URL with *** for its password, and without the values of its options.
std::string redacted(std::string_view url);
/// The URL unchanged if it has no password, otherwise redacted(), which cannot be opened again.
std::string without_password(const std::string& url);
bool is_redacted(const std::string& url);
/// Makes the path of a SQLite URL absolute, so that a later audit finds the file from any folder.
/// Returns a server's URL unchanged.
Result<std::string> absolute_database_url(std::string_view url);
/// absolute_database_url() for each of several URLs, separated by commas.
Result<std::vector<std::string>> absolute_database_urls(std::string_view text);
/// True for the URL of Sentinels or of a Redis Cluster, whose servers replace each other.
bool names_a_group(std::string_view url);
/// True for the URL of a database server, where runs share the tables' name space.
bool on_database_server(const std::string& url);
/// The URL of a file.
std::string sqlite_url(const std::filesystem::path& path);

/// The text form that parse_duration() reads: 2m, 1.5s, 300ms, 250us.
std::string format_duration(Duration duration);

}  // namespace hotcount::loadtest
