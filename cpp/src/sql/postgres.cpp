#include "postgres.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <hotcount/base/codec.hpp>
#include <hotcount/base/fork.hpp>
#include <hotcount/base/shared_objects.hpp>
#include <tuple>

#include "../base/secrets.hpp"
#include "pool.hpp"
#include "postgres_connection.hpp"

namespace hotcount::sql {
namespace {

using Parameters = std::vector<std::pair<std::string, std::string>>;

class PostgresDatabase final : public Database, ForkAware {
  public:
    PostgresDatabase(const Libpq& pq, std::string name, Parameters parameters,
                     std::optional<Duration> connect_timeout, DatabaseOptions options)
        : Database(std::move(name), options),
          session_{
              &pq,        this->name(), std::move(parameters), connect_timeout, options.timeout,
              &counters_, &sockets_},
          writers_(this->name(), options.max_writers, opener()),
          readers_(this->name(), options.max_readers, opener()) {
        start_watching_forks();
    }
    ~PostgresDatabase() override { stop_watching_forks(); }

    Dialect dialect() const override { return Dialect::postgres; }
    Result<Lease> writer(Deadline deadline) override { return writers_.lease(deadline); }
    Result<Lease> reader(Deadline deadline) override { return readers_.lease(deadline); }
    void close() override {
        closed_.store(true, std::memory_order_release);
        writers_.close();
        readers_.close();
    }
    bool closed() const override { return closed_.load(std::memory_order_acquire); }
    Stats stats() const override {
        return Stats{counters_.transactions.load(std::memory_order_relaxed),
                     counters_.statements.load(std::memory_order_relaxed), 0, retries()};
    }

  private:
    void before_fork() override {
        writers_.freeze(AtFork::abandon);
        readers_.freeze(AtFork::abandon);
        sockets_.freeze();
    }
    void after_fork(bool in_child) override {
        sockets_.thaw(in_child);
        readers_.thaw(in_child);
        writers_.thaw(in_child);
    }

    Pool::Open opener() {
        return [this](Deadline deadline) -> Result<std::unique_ptr<Connection>> {
            auto connection = std::make_unique<PostgresConnection>(session_);
            HOTCOUNT_TRY(connection->connect(deadline));
            return std::unique_ptr<Connection>{std::move(connection)};
        };
    }

    std::atomic<bool> closed_{false};
    PostgresCounters counters_;
    InheritedSockets sockets_;
    const PostgresSessionOptions session_;
    Pool writers_;
    Pool readers_;
};

// What a URL may ask of libpq by its own names. Not: what we set ourselves, and what would put a
// password into messages or a file's content into a connection.
constexpr std::array<std::string_view, 19> kOptions{
    "application_name",
    "channel_binding",
    "connect_timeout",
    "gssencmode",
    "host",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "options",
    "passfile",
    "port",
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
                              "' for postgresql; it takes: " + known);
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

// As libpq reads it: whole seconds, 0 or less for none.
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

Parameters parameters_of(const Url& url) {
    Parameters parameters;
    const auto add = [&](const char* name, const std::string& value) {
        if (!value.empty()) parameters.emplace_back(name, value);
    };
    add("host", url.host);
    if (url.port) add("port", std::to_string(*url.port));
    add("dbname", url.path.empty() ? "" : url.path.substr(1));
    add("user", url.user);
    add("password", url.password);
    for (const auto& [option, value] : url.query) {
        // PQconnectPoll() does not look at it; we do.
        if (option != "connect_timeout") parameters.emplace_back(option, value);
    }
    parameters.emplace_back("fallback_application_name", "hotcount");
    parameters.emplace_back("client_encoding", "UTF8");
    return parameters;
}

// For messages: "postgresql host:5432/app".
std::string name_of(const Url& url) {
    const auto option = [&](const char* name) {
        const auto found = url.query.find(name);
        return found == url.query.end() ? std::string{} : found->second;
    };
    const std::string port = url.port ? std::to_string(*url.port) : option("port");
    const std::string host = url.host.empty() ? option("host") : url.host;
    return "postgresql " + printable(host) + (port.empty() ? "" : ":" + printable(port)) +
           printable(url.path);
}

}  // namespace

Result<std::shared_ptr<Database>> open_postgres(const Url& url, DatabaseOptions options) {
    HOTCOUNT_TRY(check_query(url));
    HOTCOUNT_TRY_ASSIGN(const std::optional<Duration> timeout, connect_timeout(url));
    for (const std::string* text : {&url.host, &url.path, &url.user, &url.password}) {
        if (text->find('\0') != std::string::npos) return bad_option("a NUL in it");
    }
    remember_secret(url.password);
    HOTCOUNT_TRY_ASSIGN(const Libpq* const pq, load_libpq());
    const Parameters parameters = parameters_of(url);
    using Key = std::tuple<Parameters, Duration::rep, Duration::rep, std::size_t, std::size_t>;
    static auto* const databases = new SharedObjects<Key, Database>;
    const Key key{parameters, timeout.value_or(Duration{0}).count(), options.timeout.count(),
                  options.max_readers, options.max_writers};
    return databases->find_or_make(key, [&]() -> Result<std::shared_ptr<Database>> {
        auto database =
            std::make_shared<PostgresDatabase>(*pq, name_of(url), parameters, timeout, options);
        // Opened now rather than at the first call, so that what is wrong shows where it is given.
        HOTCOUNT_TRY(database->writer(Deadline::after(options.timeout)));
        return std::shared_ptr<Database>{std::move(database)};
    });
}

}  // namespace hotcount::sql
