#include "dialect.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/shared_objects.hpp>
#include <tuple>

#include "connection.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "sql/dialect.hpp"
#include "sql/hosts.hpp"
#include "sql/pool.hpp"
#include "sql/server_sessions.hpp"
#include "sql/statements.hpp"

namespace hotcount::sql {
namespace {

using Parameters = std::vector<std::pair<std::string, std::string>>;

std::string parameter(const Parameters& parameters, std::string_view name) {
    const auto found = std::find_if(parameters.begin(), parameters.end(),
                                    [&](const auto& each) { return each.first == name; });
    return found == parameters.end() ? std::string{} : found->second;
}

// Settings that change the meaning of a statement's text: a role and a database have a search_path
// of their own, and options may set another.
std::string scope_of(const Parameters& parameters) {
    std::string scope;
    for (const char* name : {"dbname", "user", "options"}) {
        scope += parameter(parameters, name) + '\n';
    }
    return scope;
}

void warn_of_weak_settings(Database& database) {
    static const Statement kRead{Statements{postgres::kSessionSql, {}}["durability"]};
    static constexpr std::array kWeak{
        WeakSetting{"fsync", is_off, kCorrupts},
        WeakSetting{"full_page_writes", is_off, kCorrupts},
        WeakSetting{"synchronous_commit", is_off, kLosesCommits},
    };
    database.look_at_durability(kRead, kWeak);
}

bool asks_for_reads_only(const Parameters& parameters) {
    return parameter(parameters, "options").find("default_transaction_read_only") !=
           std::string::npos;
}

// Whether TLS will have verified the server. As libpq has it, require is verify-ca if there is a
// root certificate.
bool verifies_server(const Parameters& parameters) {
    std::string mode = parameter(parameters, "sslmode");
    if (mode.empty()) {
        const char* const from_environment = std::getenv("PGSSLMODE");
        mode = from_environment != nullptr ? from_environment : "";
    }
    return mode == "verify-full" || mode == "verify-ca" ||
           (mode == "require" && !parameter(parameters, "sslrootcert").empty());
}

// libpq has require_auth from here on.
constexpr int kHasRequireAuth = 160000;

bool trusts_server(const Libpq& pq, const Parameters& parameters) {
    return verifies_server(parameters) || pq.PQlibVersion() >= kHasRequireAuth;
}

// Whether every host is a Unix socket's folder.
bool is_local(const Parameters& parameters) {
    const std::string host = parameter(parameters, "host");
    return (host.empty() || host.front() == '/' || host.front() == '@') &&
           host.find(',') == std::string::npos;
}

// Of the option isolation.
Result<bool> asks_for_serializable(const Url& url) {
    const auto found = url.query.find("isolation");
    if (found == url.query.end()) return false;
    if (found->second == "serializable") return true;
    return make_error(ErrorCode::config,
                      "URL: option isolation takes serializable alone, for servers without READ "
                      "COMMITTED; without the option transactions are READ COMMITTED")
        .about(&ErrorFacts::option, std::string{"isolation"});
}

// Where the URL leads.
struct PostgresHosts {
    HostUse use{HostUse::any};
    std::vector<std::string> names{};
    std::vector<Parameters> parameters{};  // For each host.
};

class PostgresDatabase final : public Database, ForkAware {
  public:
    PostgresDatabase(const Libpq& pq, std::string name, const PostgresHosts& hosts,
                     bool serializable, std::optional<Duration> connect_timeout,
                     DatabaseOptions options)
        : Database(std::move(name), options),
          shared_(this->name(), hosts.names, hosts.use),
          session_{&pq,
                   this->name(),
                   hosts.parameters,
                   scope_of(hosts.parameters.front()),
                   options.prepare,
                   asks_for_reads_only(hosts.parameters.front()),
                   serializable,
                   trusts_server(pq, hosts.parameters.front()),
                   connect_timeout,
                   options.timeout,
                   &shared_},
          writers_(std::make_shared<Pool>(this->name(), options.max_writers, opener(),
                                          options.idle_timeout)),
          readers_(std::make_shared<Pool>(this->name(), options.max_readers, opener(),
                                          options.idle_timeout)) {
        writers_->on_no_room([this] { readers_->close_idle(); });
        readers_->on_no_room([this] { writers_->close_idle(); });
        start_watching_forks();
    }
    ~PostgresDatabase() override {
        stop_watching_forks();
        writers_->stop();
        readers_->stop();
    }

    Dialect dialect() const override { return postgres_grammar().dialect(); }
    Result<Lease> writer(Deadline deadline) override { return writers_->lease(deadline); }
    // All sessions are equal, so a process that reads and writes in turn needs only one. A writer's
    // session is lent to one reader at a time, and only while no session was opened for reading:
    // otherwise writers would open more.
    Result<Lease> reader(Deadline deadline) override {
        if (readers_->empty() && !lent_.exchange(true, std::memory_order_acq_rel)) {
            if (auto lease = writers_->lease_idle(deadline, lent_)) return std::move(*lease);
            lent_.store(false, std::memory_order_release);
        }
        return readers_->lease(deadline);
    }
    void close() override {
        closed_.store(true, std::memory_order_release);
        writers_->close();
        readers_->close();
    }
    std::optional<Error> out_of_room() override {
        if (auto full = writers_->refusal()) return full;
        return shared_.hosts.refusal();
    }
    bool is_pooled() const { return shared_.pooled.load(std::memory_order_relaxed); }
    bool closed() const override { return closed_.load(std::memory_order_acquire); }
    Stats stats() const override {
        return Stats{shared_.transactions.load(std::memory_order_relaxed),
                     shared_.statements.load(std::memory_order_relaxed), 0, retries()};
    }

  private:
    void before_fork() override {
        writers_->freeze(AtFork::abandon);
        readers_->freeze(AtFork::abandon);
        shared_.hosts.freeze();
        shared_.sockets.freeze();
    }
    void after_fork(bool in_child) override {
        shared_.sockets.thaw(in_child);
        shared_.hosts.thaw();
        if (in_child) lent_.store(false, std::memory_order_relaxed);
        readers_->thaw(in_child);
        writers_->thaw(in_child);
    }

    Pool::Open opener() {
        return [this](Deadline deadline) -> Result<std::unique_ptr<Connection>> {
            auto connection = std::make_unique<PostgresConnection>(session_);
            const SteadyTime began = std::chrono::steady_clock::now();
            const Result<void> connected = connection->connect(deadline, false);
            note_reached(outage_, connected, began);
            HOTCOUNT_TRY(connected);
            return std::unique_ptr<Connection>{std::move(connection)};
        };
    }

    std::atomic<bool> closed_{false};
    Trouble outage_{name(), kUnavailable, kAvailable};
    PostgresShared shared_;
    const PostgresSessionOptions session_;
    std::atomic<bool> lent_{false};  // A writer's connection is with a reader.
    const std::shared_ptr<Pool> writers_;
    const std::shared_ptr<Pool> readers_;
};

// libpq's options that a URL may set. Excluded are options that hotcount sets itself, and those
// that would put a password into messages or a file's content into a connection.
constexpr std::array<std::string_view, 21> kOptions{
    "application_name",
    "channel_binding",
    "connect_timeout",
    "gssencmode",
    "host",
    "isolation",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "options",
    "passfile",
    "port",
    "prepare",
    "sslcert",
    "sslcrl",
    "sslkey",
    "sslmode",
    "sslrootcert",
    "target_session_attrs",
    "tcp_user_timeout",
};

Error bad_option(const std::string& what) { return make_error(ErrorCode::config, "URL: " + what); }

Result<void> check_query(const Url& url) {
    for (const auto& [option, value] : url.query) {
        if (std::find(kOptions.begin(), kOptions.end(), option) == kOptions.end()) {
            std::string known;
            for (const std::string_view name : kOptions) {
                known += (known.empty() ? "" : ", ") + std::string{name};
            }
            return bad_option("unknown option '" + printable(option) +
                              "' for postgresql; it takes: " + known)
                .about(&ErrorFacts::option, option);
        }
    }
    for (const char* name : {"host", "port"}) {
        const bool in_authority =
            std::string_view{name} == "host" ? !url.host.empty() : url.port.has_value();
        if (in_authority && url.query.contains(name)) {
            return bad_option(std::string{"the "} + name +
                              " is given twice: before the path and as "
                              "an option");
        }
    }
    if (url.hosts.size() > 1 && url.query.contains("port")) {
        return bad_option("option port with several hosts; each has its own: h1:5432,h2:5432");
    }
    if (const auto mode = url.query.find("sslmode"); mode != url.query.end()) {
        static constexpr std::array<std::string_view, 6> kModes{
            "disable", "allow", "prefer", "require", "verify-ca", "verify-full"};
        if (std::find(kModes.begin(), kModes.end(), mode->second) == kModes.end()) {
            return bad_option(
                "sslmode is none of disable, allow, prefer, require, verify-ca, verify-full");
        }
    }
    return {};
}

// As libpq reads it: whole seconds; 0 or less is no limit.
Result<std::optional<Duration>> connect_timeout(const Url& url) {
    const auto found = url.query.find("connect_timeout");
    if (found == url.query.end()) return std::optional<Duration>{};
    const std::string& text = found->second;
    int seconds = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
    if (error != std::errc{} || end != text.data() + text.size()) {
        return bad_option("connect_timeout is no number of seconds");
    }
    if (seconds <= 0) return std::optional<Duration>{};
    return std::optional<Duration>{std::chrono::seconds{seconds}};
}

Parameters parameters_of(const Url& url, const UrlHost& host) {
    Parameters parameters;
    const auto add = [&](const char* name, const std::string& value) {
        if (!value.empty()) parameters.emplace_back(name, value);
    };
    add("host", host.host);
    if (host.port) add("port", std::to_string(*host.port));
    add("dbname", url.path.empty() ? "" : url.path.substr(1));
    add("user", url.user);
    add("password", url.password);
    for (const auto& [option, value] : url.query) {
        // Ours: PQconnectPoll() does not look at the first, libpq does not know the next two, and
        // which of several hosts will do is found out here.
        const bool ours = option == "connect_timeout" || option == "prepare" ||
                          option == "isolation" ||
                          (option == "target_session_attrs" && url.hosts.size() > 1);
        if (!ours) parameters.emplace_back(option, value);
    }
    parameters.emplace_back("fallback_application_name", "hotcount");
    parameters.emplace_back("client_encoding", "UTF8");
    return parameters;
}

// Time limits that end a TCP connection to an unreachable host, under libpq's names, unless the URL
// sets them. libpq ignores them for Unix sockets.
void add_tcp_limits(const Url& url, const DatabaseOptions& options, Parameters& parameters) {
    const auto add = [&](const char* name, std::int64_t value) {
        if (!url.query.contains(name)) parameters.emplace_back(name, std::to_string(value));
    };
    add("keepalives_idle", kTcpLimits.idle);
    add("keepalives_interval", kTcpLimits.interval);
    add("keepalives_count", kTcpLimits.count);
    add("tcp_user_timeout",
        std::chrono::ceil<std::chrono::milliseconds>(options.tcp_user_timeout).count());
}

// For messages: "postgresql host:5432/app".
std::string name_of(const Url& url) {
    const auto option = [&](const char* name) {
        const auto found = url.query.find(name);
        return found == url.query.end() ? std::string{} : found->second;
    };
    const std::string port = url.port ? std::to_string(*url.port) : option("port");
    if (url.hosts.size() > 1) return "postgresql " + host_names(url) + printable(url.path);
    const std::string host = url.host.empty() ? option("host") : url.host;
    return "postgresql " + printable(host) + (port.empty() ? "" : ":" + printable(port)) +
           printable(url.path);
}

Result<PostgresHosts> hosts_of(const Url& url, const Libpq& pq, const DatabaseOptions& options) {
    constexpr std::uint16_t kPort = 5432;
    PostgresHosts hosts;
    if (url.hosts.size() > 1) {
        HOTCOUNT_TRY_ASSIGN(hosts.use, check_hosts(url, kPort));
    }
    for (const UrlHost& host : url.hosts) {
        Parameters parameters = parameters_of(url, host);
        add_tcp_limits(url, options, parameters);
        if (pq.PQlibVersion() >= kHasRequireAuth && !verifies_server(parameters) &&
            !is_local(parameters)) {
            parameters.emplace_back("require_auth", "!password");
        }
        hosts.names.push_back(host_name(host));
        hosts.parameters.push_back(std::move(parameters));
    }
    return hosts;
}

Result<std::shared_ptr<Database>> open_postgres(const Url& url, DatabaseOptions options) {
    HOTCOUNT_TRY(check_query(url));
    HOTCOUNT_TRY_ASSIGN(const std::optional<Duration> timeout, connect_timeout(url));
    HOTCOUNT_TRY_ASSIGN(const bool serializable, asks_for_serializable(url));
    if (const auto given = url.query.find("prepare"); given != url.query.end()) {
        HOTCOUNT_TRY_ASSIGN(options.prepare, url_flag("prepare", given->second));
    }
    for (const std::string* text : {&url.path, &url.user, &url.password}) {
        if (text->find('\0') != std::string::npos) return bad_option("a NUL in it");
    }
    HOTCOUNT_TRY_ASSIGN(const Libpq* const pq, load_libpq());
    HOTCOUNT_TRY_ASSIGN(const PostgresHosts hosts, hosts_of(url, *pq, options));
    using Key = std::tuple<std::vector<Parameters>, HostUse, bool, Duration::rep, Duration::rep,
                           std::size_t, std::size_t, bool, std::optional<Duration>>;
    static auto* const databases = new SharedObjects<Key, Database>;
    const Key key{hosts.parameters,
                  hosts.use,
                  serializable,
                  timeout.value_or(Duration{0}).count(),
                  options.timeout.count(),
                  options.max_readers,
                  options.max_writers,
                  options.prepare,
                  options.idle_timeout};
    return databases->find_or_make(key, [&]() -> Result<std::shared_ptr<Database>> {
        auto database = std::make_shared<PostgresDatabase>(*pq, name_of(url), hosts, serializable,
                                                           timeout, options);
        // Opened now, not at the first call, so that a wrong URL or option fails where it is given.
        HOTCOUNT_TRY(database->writer(Deadline::after(options.timeout)));
        warn_of_weak_settings(*database);
        return std::shared_ptr<Database>{std::move(database)};
    });
}

class PostgresGrammar final : public Grammar {
  public:
    std::string_view name() const override { return "postgresql"; }
    std::string_view words() const override { return postgres::kWordsSql; }

    bool text_is_utf8() const override { return true; }
    bool reads_alone_at_session_level() const override { return true; }
    bool writes_in_queries() const override { return true; }
    std::vector<std::string> settings() const override {
        const Statements sql{postgres::kSessionSql, {}};
        std::vector<std::string> queries;
        for (const char* name : {"settings", "in_recovery", "tls", "sessions", "replicas",
                                 "synchronous_replicas", "replica_lag"}) {
            queries.push_back(sql[name]);
        }
        return queries;
    }
};

}  // namespace

const Grammar& postgres_grammar() {
    static const PostgresGrammar kGrammar;
    return kGrammar;
}

Driver postgres_driver() {
    return {{{"postgresql"}, {"postgres", true}},
            open_postgres,
            postgres_grammar(),
            [](const Database& database) {
                return static_cast<const PostgresDatabase&>(database).is_pooled();
            }};
}

}  // namespace hotcount::sql
