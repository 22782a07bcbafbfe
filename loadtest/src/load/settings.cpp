#include "settings.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <hotcount/detail/redis/options.hpp>
#include <hotcount/url.hpp>
#include <utility>

#include "words.hpp"

namespace hotcount::loadtest {
namespace {

struct Unit {
    std::string_view name;
    double factor;
};

constexpr std::array kTimeUnits = {Unit{"ns", 1e-9}, Unit{"us", 1e-6}, Unit{"ms", 1e-3},
                                   Unit{"s", 1},     Unit{"m", 60},    Unit{"h", 3600}};
constexpr std::array kCountUnits = {Unit{"k", 1e3}, Unit{"K", 1e3}, Unit{"M", 1e6}, Unit{"G", 1e9}};

/// A decimal number with an optional unit of the list; nothing if it is anything else.
template <std::size_t size>
std::optional<double> scaled(std::string_view text, const std::array<Unit, size>& units) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || !std::isfinite(number) || number < 0) return std::nullopt;
    const std::string_view name(end, static_cast<std::size_t>(text.data() + text.size() - end));
    if (name.empty()) return number;
    for (const Unit& unit : units) {
        if (unit.name == name) return number * unit.factor;
    }
    return std::nullopt;
}

}  // namespace

std::string_view to_string(ServerKind kind) {
    return word_of(kind, {"redis", "postgres", "mariadb", "mysql", "sentinel", "redis-cluster",
                          "postgres-pair", "galera"});
}

std::string_view to_string(FaultKind kind) {
    return word_of(kind, {"redis.pause", "redis.kill9", "redis.failover", "redis.reshard",
                          "redis.cut", "db.pause", "db.kill9", "db.failover", "db.cut"});
}

bool can_have(ServerKind server, FaultKind fault) {
    if (is_redis(server) == is_of_database(fault)) return false;
    if (fault == FaultKind::redis_reshard || fault == FaultKind::redis_cut)
        return server == ServerKind::redis_cluster;
    if (fault == FaultKind::db_cut) return is_group(server);
    return !lasts_by_itself(fault) || is_group(server);
}

std::string_view to_string(Command command) {
    return word_of(command, {"canonical", "compare", "run", "audit"});
}

Result<Duration> parse_duration(std::string_view text) {
    const auto seconds = scaled(text, kTimeUnits);
    if (!seconds || *seconds > 30.0 * 24 * 3600) {
        return refuse_word("duration", text, "250us, 500ms, 10s, 1.5m or 2h, at most 30 days");
    }
    return Duration{std::llround(*seconds * 1e9)};
}

Result<std::uint64_t> parse_count(std::string_view text) {
    const auto count = scaled(text, kCountUnits);
    // A double holds every whole number up to 2^53, and 1.5M is 1,500,000 exactly.
    if (!count || *count != std::floor(*count) || *count > 0x1p53) {
        return refuse_word("count", text, "whole numbers such as 500, 10k or 1.5M");
    }
    return static_cast<std::uint64_t>(*count);
}

Result<double> parse_rate(std::string_view text) {
    const auto rate = scaled(text, kCountUnits);
    if (!rate || *rate <= 0 || *rate > 1e8) {
        return refuse_word("rate", text,
                           "operations per second such as 500, 0.5 or 5k, at most 100M");
    }
    return *rate;
}

Result<double> parse_share(std::string_view text) {
    constexpr std::array kShareUnits = {Unit{"%", 0.01}};
    const auto share = scaled(text, kShareUnits);
    if (!share || *share > 1) return refuse_word("share", text, "0.1% or 0.001, at most 100%");
    return *share;
}

bool Threshold::is_met_by(double value) const {
    if (bound == "<") return value < limit;
    if (bound == "<=") return value <= limit;
    if (bound == "==") return value == limit;
    return bound == ">" ? value > limit : value >= limit;
}

double Threshold::quantile() const {
    const std::string name = of_staleness() ? figure.substr(6) : figure;
    if (name == "max") return 1;
    const auto percent = scaled(name.substr(name.starts_with('p') ? 1 : 0), std::array<Unit, 0>{});
    return name.starts_with('p') && percent && *percent < 100 ? *percent / 100 : 0;
}

Result<std::vector<Threshold>> parse_thresholds(std::string_view text) {
    constexpr std::string_view kTakes =
        "p50, p99, p99.9 ... or max with a time, the same with stale. before it, err with a share, "
        "rate with operations per second, lost, double or ghost with a number: p99<50ms,lost==0";
    std::vector<Threshold> thresholds;
    for (const std::string_view part : split(text, ',')) {
        const std::size_t from = part.find_first_of("<=>");
        const std::size_t to = part.find_first_not_of("<=>", from);
        if (from == std::string_view::npos || to == std::string_view::npos) {
            return refuse_word("threshold", part, kTakes);
        }
        Threshold one{std::string{part}, std::string{part.substr(0, from)},
                      std::string{part.substr(from, to - from)}};
        if (one.bound == "=") one.bound = "==";
        constexpr std::array<std::string_view, 5> kBounds = {"<", "<=", "==", ">=", ">"};
        if (std::find(kBounds.begin(), kBounds.end(), one.bound) == kBounds.end()) {
            return refuse_word("threshold", part, kTakes);
        }
        const std::string_view limit = part.substr(to);
        if (one.quantile() > 0) {
            // Elsewhere a number alone has seconds; other load tools take it for milliseconds.
            if (std::isdigit(static_cast<unsigned char>(limit.back())) != 0) {
                return refuse_word("threshold", part, "a time with its unit: p99<50ms");
            }
            HOTCOUNT_TRY_ASSIGN(const Duration time, parse_duration(limit));
            one.limit = static_cast<double>(time.count());
        } else if (one.figure == "err") {
            HOTCOUNT_TRY_ASSIGN(one.limit, parse_share(limit));
        } else if (one.figure == "rate") {
            HOTCOUNT_TRY_ASSIGN(one.limit, parse_rate(limit));
        } else if (one.figure == "lost" || one.figure == "double" || one.figure == "ghost") {
            HOTCOUNT_TRY_ASSIGN(const std::uint64_t count, parse_count(limit));
            one.limit = static_cast<double>(count);
        } else {
            return refuse_word("threshold", part, kTakes);
        }
        thresholds.push_back(std::move(one));
    }
    return thresholds;
}

Result<Mix> parse_mix(std::string_view text) {
    constexpr std::string_view kTakes = "shares such as vote=80,unvote=5,read=15";
    Mix mix{0, 0, 0};
    std::vector<std::string_view> names;
    for (const std::string_view part : split(text, ',')) {
        const std::size_t equals = part.find('=');
        if (equals == std::string_view::npos) return refuse_word("mix", text, kTakes);
        const std::string_view name = part.substr(0, equals);
        if (std::find(names.begin(), names.end(), name) != names.end()) {
            return make_error(ErrorCode::config,
                              fmt::format("'{}' stands twice in '{}'", name, text));
        }
        names.push_back(name);
        const auto share = scaled(part.substr(equals + 1), std::array<Unit, 0>{});
        if (!share) return refuse_word("mix", text, kTakes);
        if (name == "vote") {
            mix.vote = *share;
        } else if (name == "unvote") {
            mix.unvote = *share;
        } else if (name == "read") {
            mix.read = *share;
        } else {
            return refuse_word("operation of a mix", name, "vote, unvote, read");
        }
    }
    const double all = mix.vote + mix.unvote + mix.read;
    if (all <= 0 || !std::isfinite(all)) return refuse_word("mix", text, kTakes);
    if (mix.unvote > 0 && mix.vote == 0) {
        return make_error(ErrorCode::config,
                          fmt::format("mix '{}' has un-votes and no votes to take back", text));
    }
    return mix;
}

Result<Arrival> parse_arrival(std::string_view text) {
    return parse_word("arrival", text, {Arrival::poisson, Arrival::uniform, Arrival::closed});
}

namespace {

/// 10x; 0x is a pause.
std::optional<double> parse_factor(std::string_view text) {
    constexpr std::array kFactorUnits = {Unit{"x", 1}};
    const auto factor = text.ends_with('x') ? scaled(text, kFactorUnits) : std::nullopt;
    return factor && *factor <= 1e6 ? factor : std::nullopt;
}

/// A duration of a profile: not 0.
Result<Duration> parse_step(std::string_view text) {
    HOTCOUNT_TRY_ASSIGN(const Duration lasts, parse_duration(text));
    if (lasts >= std::chrono::milliseconds{1}) return lasts;
    return refuse_word("part of an arrival", text, "1ms or more");
}

}  // namespace

Result<std::optional<RateProfile>> parse_profile(std::string_view text) {
    constexpr std::string_view kTakes = "burst:10x,2s/20s or stairs:1x,2x,4x/10s";
    const bool burst = text.starts_with("burst:");
    if (!burst && !text.starts_with("stairs:")) return std::optional<RateProfile>{};
    RateProfile profile;
    profile.text = std::string{text};
    const std::string_view what = text.substr(text.find(':') + 1);
    const std::size_t slash = what.find('/');
    if (slash == std::string_view::npos) return refuse_word("arrival", text, kTakes);
    HOTCOUNT_TRY_ASSIGN(const Duration last, parse_step(what.substr(slash + 1)));
    const std::vector<std::string_view> parts = split(what.substr(0, slash), ',');
    if (!burst) {
        double sum = 0;
        for (const std::string_view part : parts) {
            const auto factor = parse_factor(part);
            if (!factor) return refuse_word("arrival", text, kTakes);
            profile.steps.push_back({*factor, last});
            sum += *factor;
        }
        if (sum == 0) return refuse_word("arrival", text, kTakes);
        return std::optional{std::move(profile)};
    }
    const auto factor = parse_factor(parts[0]);
    if (parts.size() != 2 || !factor) return refuse_word("arrival", text, kTakes);
    HOTCOUNT_TRY_ASSIGN(const Duration lasts, parse_step(parts[1]));
    if (lasts >= last) {
        return make_error(ErrorCode::config,
                          fmt::format("'{}': a burst is shorter than the time between two", text));
    }
    const Duration before = (last - lasts) / 2;
    profile.steps = {{1, before}, {*factor, lasts}, {1, last - lasts - before}};
    return std::optional{std::move(profile)};
}

std::string_view to_string(ProgressMode mode) { return word_of(mode, {"line", "ndjson", "none"}); }

Result<ProgressMode> parse_progress(std::string_view text) {
    return parse_word("kind of progress", text,
                      {ProgressMode::line, ProgressMode::ndjson, ProgressMode::none});
}

TrafficSettings for_sets(TrafficSettings traffic) {
    constexpr std::uint64_t kMost = 1000;
    traffic.items = std::min(traffic.items, kMost);
    traffic.users = std::min(traffic.users, kMost);
    traffic.dup = 0;
    return traffic;
}

namespace {

Result<Fault> parse_fault(std::string_view part) {
    constexpr std::string_view kTakes =
        "TIME:WHAT+TIME with redis.kill9, redis.pause, redis.cut, db.kill9, db.pause and db.cut, "
        "such "
        "as 3s:redis.kill9+1s; TIME:redis.failover, TIME:db.failover and TIME:redis.reshard=SLOTS";
    const std::size_t colon = part.find(':');
    if (colon == std::string_view::npos) return refuse_word("fault", part, kTakes);
    const std::size_t end = std::min(part.find_first_of("+=", colon), part.size());
    const char mark = end < part.size() ? part[end] : '\0';
    const std::string_view value = part.substr(std::min(end + 1, part.size()));
    Fault fault{};
    HOTCOUNT_TRY_ASSIGN(fault.at, parse_duration(part.substr(0, colon)));
    HOTCOUNT_TRY_ASSIGN(
        fault.kind,
        parse_word("fault", part.substr(colon + 1, end - colon - 1),
                   {FaultKind::redis_pause, FaultKind::redis_kill9, FaultKind::redis_failover,
                    FaultKind::redis_reshard, FaultKind::redis_cut, FaultKind::db_pause,
                    FaultKind::db_kill9, FaultKind::db_failover, FaultKind::db_cut}));
    const char wanted = fault.kind == FaultKind::redis_reshard ? '='
                        : lasts_by_itself(fault.kind)          ? '\0'
                                                               : '+';
    if (mark != wanted) return refuse_word("fault", part, kTakes);
    if (mark == '+') {
        HOTCOUNT_TRY_ASSIGN(fault.lasts, parse_duration(value));
        if (fault.lasts < std::chrono::milliseconds{1}) {
            return make_error(ErrorCode::config, fmt::format("{} lasts 1ms or more", part));
        }
    }
    if (mark == '=') {
        HOTCOUNT_TRY_ASSIGN(const std::uint64_t slots, parse_count(value));
        // A primary of three has as many.
        if (slots < 1 || slots > 5000) {
            return make_error(ErrorCode::config, fmt::format("{} moves 1 to 5000 slots", part));
        }
        fault.slots = static_cast<std::uint32_t>(slots);
    }
    return fault;
}

}  // namespace

Result<std::vector<Fault>> parse_faults(std::string_view text) {
    std::vector<Fault> faults;
    for (const std::string_view part : split(text, ',')) {
        HOTCOUNT_TRY_ASSIGN(const Fault fault, parse_fault(part));
        faults.push_back(fault);
    }
    std::sort(faults.begin(), faults.end(),
              [](const Fault& a, const Fault& b) { return a.at < b.at; });
    for (std::size_t i = 1; i < faults.size(); ++i) {
        if (faults[i - 1].at + faults[i - 1].lasts < faults[i].at) continue;
        return make_error(ErrorCode::config, "each fault begins after the one before has ended");
    }
    return faults;
}

std::string format_faults(const std::vector<Fault>& faults) {
    std::string text;
    for (const Fault& fault : faults) {
        text += fmt::format("{}{}:{}", text.empty() ? "" : ",", format_duration(fault.at),
                            to_string(fault.kind));
        if (fault.lasts > Duration{0}) text += "+" + format_duration(fault.lasts);
        if (fault.slots > 0) text += fmt::format("={}", fault.slots);
    }
    return text;
}

Result<std::vector<ServerKind>> parse_managed(std::string_view text) {
    std::vector<ServerKind> kinds;
    for (const std::string_view name : split(text, ',')) {
        HOTCOUNT_TRY_ASSIGN(
            const ServerKind kind,
            parse_word("server that can be started", name,
                       {ServerKind::redis, ServerKind::postgres, ServerKind::mariadb,
                        ServerKind::mysql, ServerKind::sentinel, ServerKind::redis_cluster,
                        ServerKind::postgres_pair, ServerKind::galera}));
        if (std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) {
            return make_error(ErrorCode::config, "it takes each server once");
        }
        kinds.push_back(kind);
    }
    return kinds;
}

Result<std::string> look_up_url(const std::string& text) {
    if (text.starts_with("env:")) {
        const char* const value = std::getenv(text.c_str() + 4);
        if (value == nullptr || *value == '\0') {
            return make_error(ErrorCode::config,
                              fmt::format("the environment has no {}", text.substr(4)));
        }
        return std::string{value};
    }
    if (!text.starts_with("file:")) return text;
    std::ifstream file(text.substr(5));
    std::string line;
    std::getline(file, line);
    // Strips blanks that an editor or a template leaves around the URL.
    constexpr std::string_view kBlank = " \t\r";
    line.erase(line.find_last_not_of(kBlank) + 1);
    line.erase(0, line.find_first_not_of(kBlank));
    if (line.empty()) {
        return make_error(ErrorCode::config,
                          fmt::format("{} cannot be read, or is empty", text.substr(5)));
    }
    return line;
}

Result<std::string> parse_redis_url(std::string_view text) {
    HOTCOUNT_TRY(redis::parse_options(text));
    return std::string{text};
}

std::vector<std::string> split_urls(std::string_view text) {
    const auto begins_url = [](std::string_view rest) {
        if (rest.starts_with("env:") || rest.starts_with("file:")) return true;
        const std::size_t end = rest.find_first_not_of("abcdefghijklmnopqrstuvwxyz+");
        return end != 0 && end != std::string_view::npos && rest.substr(end).starts_with("://");
    };
    std::vector<std::string> urls;
    std::size_t from = 0;
    for (std::size_t at = text.find(','); at != std::string_view::npos;
         at = text.find(',', at + 1)) {
        if (!begins_url(text.substr(at + 1))) continue;
        urls.emplace_back(text.substr(from, at - from));
        from = at + 1;
    }
    urls.emplace_back(text.substr(from));
    return urls;
}

std::string redacted(std::string_view url) {
    if (url.empty()) return {};
    const auto parsed = parse_url(url);
    return parsed ? parsed->str() : "***";
}

std::string without_password(const std::string& url) {
    const auto parsed = parse_url(url);
    return parsed && parsed->password.empty() ? url : redacted(url);
}

bool is_redacted(const std::string& url) { return url.find(":***@") != std::string::npos; }

Result<std::string> absolute_database_url(std::string_view url) {
    HOTCOUNT_TRY_ASSIGN(const Url parsed, parse_url(url));
    if (on_database_server(std::string{url})) return std::string{url};
    if (parsed.scheme != "sqlite") {
        return make_error(ErrorCode::config,
                          fmt::format("--db {} cannot be driven; it takes sqlite:///path, "
                                      "postgresql://, mariadb:// or mysql://",
                                      parsed.str()));
    }
    const bool bare = parsed.host.empty() && !parsed.port && parsed.user.empty() &&
                      parsed.password.empty() && parsed.query.empty();
    if (!bare) {
        return make_error(ErrorCode::config,
                          fmt::format("--db {}: it takes a path alone, sqlite:///relative or "
                                      "sqlite:////absolute",
                                      parsed.str()));
    }
    if (parsed.path.size() < 2 || parsed.path == "/:memory:") {
        return make_error(ErrorCode::config,
                          "--db must name a file: a database in memory could not be audited after "
                          "a crash; it takes sqlite:///path");
    }
    std::error_code failed;
    const auto path = std::filesystem::absolute(parsed.path.substr(1), failed);
    if (failed) {
        return make_error(ErrorCode::config,
                          fmt::format("--db {}: {}", parsed.str(), failed.message()));
    }
    return sqlite_url(path);
}

Result<std::vector<std::string>> absolute_database_urls(std::string_view text) {
    std::vector<std::string> urls;
    for (const std::string& url : split_urls(text)) {
        HOTCOUNT_TRY_ASSIGN(std::string absolute, absolute_database_url(url));
        urls.push_back(std::move(absolute));
    }
    return urls;
}

bool names_a_group(std::string_view url) {
    const std::string_view scheme = url.substr(0, url.find("://"));
    return scheme.ends_with("+sentinel") || scheme.ends_with("+cluster");
}

bool TrialSettings::leaves_keys() const { return managed_redis ? names_a_group(redis_url) : keep; }

bool on_database_server(const std::string& url) {
    const auto parsed = parse_url(url);
    if (!parsed) return false;
    const std::string& scheme = parsed->scheme;
    return scheme == "postgresql" || scheme == "postgres" || scheme == "mariadb" ||
           scheme == "mysql";
}

std::string sqlite_url(const std::filesystem::path& path) {
    std::string url = "sqlite:///";
    // Escapes the characters that would end the path in a URL or begin an escape.
    for (const char c : path.string()) {
        if (c == '%' || c == '?' || c == '#') {
            url += fmt::format("%{:02X}", static_cast<unsigned>(static_cast<unsigned char>(c)));
        } else {
            url += c;
        }
    }
    return url;
}

std::string format_duration(Duration duration) {
    const auto seconds = std::chrono::duration<double>(duration).count();
    if (duration % std::chrono::minutes{1} == Duration{0} && duration > Duration{0}) {
        return fmt::format("{:g}m", seconds / 60);
    }
    if (seconds >= 1 || duration == Duration{0}) return fmt::format("{:g}s", seconds);
    if (seconds >= 1e-3) return fmt::format("{:g}ms", seconds * 1e3);
    return fmt::format("{:g}us", seconds * 1e6);
}

}  // namespace hotcount::loadtest
