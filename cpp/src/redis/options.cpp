#include <sys/un.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/redis/options.hpp>

namespace hotcount::redis {
namespace {

Result<std::uint32_t> parse_database(std::string_view text) {
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || end != text.data() + text.size() || number > 1'000'000) {
        // Not quoted: if an "@" is missing, this text is the rest of a password.
        return make_error(ErrorCode::config,
                          "URL: the database is not a number from 0 to 1000000; only "
                          "redis+sentinel:// names a service, before it");
    }
    return number;
}

// At most a day, which is far from where nanoseconds overflow.
Result<Duration> parse_seconds(const std::string& name, std::string_view text) {
    double seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (error != std::errc{} || end != text.data() + text.size() || !(seconds > 0) ||
        seconds > 86'400) {
        return make_error(ErrorCode::config, "URL: " + name + " is not a number of seconds");
    }
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>{seconds});
}

// A path that is too long, or has a NUL in it, would name another socket.
Result<void> check_socket_path(const std::string& path) {
    if (path.find('\0') != std::string::npos) {
        return make_error(ErrorCode::config, "URL: the socket's path has a NUL");
    }
    if (path.size() >= sizeof(sockaddr_un::sun_path)) {
        return make_error(ErrorCode::config, "URL: the socket's path is longer than the " +
                                                 std::to_string(sizeof(sockaddr_un::sun_path) - 1) +
                                                 " bytes that the system takes");
    }
    return {};
}

constexpr std::array<std::string_view, 9> kArguments{
    "timeout",       "prefix",      "client_name",
    "silence_limit", "max_queue",   "sentinel_credentials",
    "sentinel_tls",  "credentials", "address_map",
};

constexpr std::uint16_t kSentinelPort = 26379;

bool is_sentinel(std::string_view scheme) { return scheme.ends_with("+sentinel"); }

// "/service" or "/service/0"; returns the database.
Result<std::string> take_service(const Url& url, Options& options) {
    const std::string_view path = url.path.empty() ? std::string_view{"/"} : url.path;
    const auto slash = path.find('/', 1);
    options.service = path.substr(1, slash == std::string_view::npos ? slash : slash - 1);
    // As Sentinel takes names: sentinelStartup of its file.
    const bool fits = std::all_of(options.service.begin(), options.service.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
               c == '.' || c == '-' || c == '_';
    });
    if (options.service.empty() || !fits) {
        return make_error(ErrorCode::config, "URL: " + url.scheme +
                                                 ":// names a service behind the hosts, in " +
                                                 "letters, digits and .-_: " + url.scheme +
                                                 "://host:26379,host:26379/SERVICE/0");
    }
    return std::string{slash == std::string_view::npos ? "" : path.substr(slash + 1)};
}

}  // namespace

std::string Endpoint::str() const {
    const bool is_ipv6 = host.find(':') != std::string::npos;
    return (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<std::vector<Endpoint>> seeds_of(const Url& url, std::uint16_t default_port) {
    // Other clients do not decode "h%6fst", and would connect to another host.
    if (url.host_was_escaped) {
        return make_error(ErrorCode::config, "URL: the host has a percent sign");
    }
    std::vector<Endpoint> seeds;
    for (const UrlHost& each : url.hosts) {
        Endpoint seed{each.host.empty() ? Options{}.host : each.host,
                      each.port.value_or(default_port)};
        const auto lower = [](char c) {
            return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c;
        };
        const auto is_same = [&](const Endpoint& other) {
            return other.port == seed.port &&
                   std::ranges::equal(other.host, seed.host, {}, lower, lower);
        };
        if (std::ranges::any_of(seeds, is_same)) {
            return make_error(ErrorCode::config,
                              "URL: " + printable(seed.str()) + " is given twice");
        }
        seeds.push_back(std::move(seed));
    }
    return seeds;
}

std::string Options::address() const {
    if (!unix_path.empty()) return "redis " + unix_path;
    if (!service.empty()) return "redis+sentinel " + service;
    return (cluster ? "redis+cluster " : "redis ") + host + ":" + std::to_string(port);
}

Result<Options> parse_options(std::string_view text) {
    HOTCOUNT_TRY_ASSIGN(const Url url, parse_url(text));
    Options options;
    options.user = url.user;
    options.password = url.password;
    if (!options.user.empty() && options.password.empty()) {
        return make_error(ErrorCode::config,
                          "URL: a user without a password: the server would take the client for "
                          "its default user. For a user that needs none write any password");
    }
    std::string database;
    const std::string base = url.scheme.substr(0, url.scheme.find('+'));
    const bool is_base = base == "redis" || base == "valkey";
    const bool is_tls = base == "rediss" || base == "valkeys";
    options.cluster = url.scheme == base + "+cluster" && (is_base || is_tls);
    options.tls.enabled =
        is_tls && (base == url.scheme || options.cluster || is_sentinel(url.scheme));
    if ((options.cluster || is_sentinel(url.scheme)) && (is_base || is_tls) && url.host.empty()) {
        return make_error(
            ErrorCode::config,
            "URL: " + url.scheme + ":// lacks its hosts: " + url.scheme +
                (options.cluster ? "://host:6379,host:6379" : "://host:26379/SERVICE/0"));
    }
    if (options.cluster) {
        HOTCOUNT_TRY_ASSIGN(options.seeds, seeds_of(url, options.port));
        options.host = options.seeds.front().host;
        options.port = options.seeds.front().port;
        if (!url.path.empty()) database = url.path.substr(1);
    } else if (is_sentinel(url.scheme) && (is_base || is_tls)) {
        HOTCOUNT_TRY_ASSIGN(options.seeds, seeds_of(url, kSentinelPort));
        HOTCOUNT_TRY_ASSIGN(database, take_service(url, options));
    } else if (url.scheme == "redis" || url.scheme == "valkey" || options.tls.enabled) {
        HOTCOUNT_TRY(one_host(url, "several are for redis+cluster:// and redis+sentinel://"));
        HOTCOUNT_TRY_ASSIGN(const auto seeds, seeds_of(url, options.port));
        options.host = seeds.front().host;
        options.port = seeds.front().port;
        if (!url.path.empty()) database = url.path.substr(1);
    } else if (url.scheme == "redis+unix" || url.scheme == "valkey+unix" || url.scheme == "unix") {
        if (!url.host.empty()) {
            return make_error(
                ErrorCode::config,
                "URL: " + url.scheme + " takes three slashes and an absolute path: " + url.str());
        }
        options.unix_path = url.path;
        if (options.unix_path.size() < 2) {
            return make_error(ErrorCode::config, "URL: " + url.scheme + " lacks the socket's path");
        }
        HOTCOUNT_TRY(check_socket_path(options.unix_path));
    } else {
        return make_error(
            ErrorCode::config,
            "URL: scheme '" + url.scheme +
                "' is not a server this version knows: redis, rediss, valkey, valkeys, "
                "each of them with +cluster or +sentinel; redis+unix, valkey+unix, "
                "unix");
    }
    const std::map<std::string_view, std::string*> tls_options{
        {"ca_file", &options.tls.ca_file},
        {"cert_file", &options.tls.cert_file},
        {"key_file", &options.tls.key_file},
        {"server_name", &options.tls.server_name}};
    for (const auto& [name, value] : url.query) {
        const auto tls_option = tls_options.find(name);
        if (options.tls.enabled && tls_option != tls_options.end()) {
            if (value.find('\0') != std::string::npos) {
                return make_error(ErrorCode::config, "URL: " + name + " has a NUL");
            }
            *tls_option->second = value;
            continue;
        }
        if (name == "connect_timeout") {
            HOTCOUNT_TRY_ASSIGN(options.connect_timeout, parse_seconds(name, value));
            continue;
        }
        if (name == "protocol") {
            if (value != "2" && value != "3") {
                return make_error(ErrorCode::config, "URL: protocol is neither 2 nor 3");
            }
            options.protocol = value == "2" ? 2 : 3;
            continue;
        }
        if (name != "db") {
            const bool is_argument =
                std::find(kArguments.begin(), kArguments.end(), name) != kArguments.end();
            return make_error(
                       ErrorCode::config,
                       "URL: unknown option '" + printable(name) + "' for " + url.scheme +
                           "; it takes: db, connect_timeout, protocol" +
                           (options.tls.enabled ? ", ca_file, cert_file, key_file, server_name"
                                                : "") +
                           (is_argument ? ". " + name + " is an argument: hotcount.Redis(url, " +
                                              name + "=...)"
                                        : ""))
                .about(&ErrorFacts::option, name);
        }
        if (!database.empty()) {
            return make_error(ErrorCode::config, "URL: the database is given twice");
        }
        database = value;
    }
    if (!database.empty()) {
        HOTCOUNT_TRY_ASSIGN(options.database, parse_database(database));
    }
    if (options.cluster && options.database != 0) {
        return make_error(ErrorCode::config, "URL: a cluster has database 0 alone: write " +
                                                 url.scheme + "://host:port without /" +
                                                 std::to_string(options.database));
    }
    if (options.tls.cert_file.empty() != options.tls.key_file.empty()) {
        return make_error(ErrorCode::config, "URL: cert_file and key_file come together");
    }
    return options;
}

Duration Options::silence() const {
    constexpr Duration kLeast = std::chrono::milliseconds{1500};
    if (silence_limit > Duration{0}) return silence_limit;
    return seeds.empty() ? std::max(kLeast, timeout) : kLeast;
}

}  // namespace hotcount::redis
