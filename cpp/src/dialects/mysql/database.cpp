#include "dialect.hpp"

#include <array>
#include <atomic>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/shared_objects.hpp>
#include <map>
#include <tuple>

#include "connection.hpp"
#include "hotcount_embedded/dialects/mysql/sql.hpp"
#include "libmariadb.hpp"
#include "sql/dialect.hpp"
#include "sql/hosts.hpp"
#include "sql/pool.hpp"
#include "sql/server_sessions.hpp"
#include "sql/statements.hpp"

namespace hotcount::sql {
namespace {

void warn_of_weak_settings(Database& database) {
    static const Statement kRead{Statements{mysql::kSessionSql, {}}["durability"]};
    static constexpr auto kIsNotOne = [](std::string_view value) { return value != "1"; };
    static constexpr std::array kWeak{
        WeakSetting{"innodb_flush_log_at_trx_commit", kIsNotOne, kLosesCommits},
        WeakSetting{"innodb_doublewrite", is_off, kCorrupts},
        WeakSetting{"sync_binlog", kIsNotOne,
                    "the binary log may lack the last commits after a crash, and replicas with it",
                    "log_bin"},
    };
    database.look_at_durability(kRead, kWeak);
}

class MysqlDatabase final : public Database, ForkAware {
  public:
    MysqlDatabase(const libmariadb::Library& library, MysqlTarget target, DatabaseOptions options)
        : Database(target.name, options),
          library_(library),
          target_(std::move(target)),
          shared_(name(), host_names_of(target_), target_.use),
          writers_(std::make_shared<Pool>(name(), options.max_writers, opener(false),
                                          options.idle_timeout)),
          readers_(std::make_shared<Pool>(name(), options.max_readers, opener(true),
                                          options.idle_timeout)) {
        writers_->on_no_room([this] { readers_->close_idle(); });
        readers_->on_no_room([this] { writers_->close_idle(); });
        shared_.close_idle = [this] {
            writers_->close_idle();
            readers_->close_idle();
        };
        start_watching_forks();
    }
    ~MysqlDatabase() override {
        stop_watching_forks();
        writers_->stop();
        readers_->stop();
    }

    Dialect dialect() const override { return mysql_grammar().dialect(); }
    Result<Lease> writer(Deadline deadline) override { return lease(*writers_, deadline); }
    Result<Lease> reader(Deadline deadline) override { return lease(*readers_, deadline); }
    void close() override {
        closed_.store(true, std::memory_order_release);
        writers_->close();
        readers_->close();
    }
    std::optional<Error> out_of_room() override {
        if (auto full = writers_->refusal()) return full;
        return shared_.hosts.refusal();
    }
    bool closed() const override { return closed_.load(std::memory_order_acquire); }
    Stats stats() const override {
        return Stats{shared_.transactions.load(std::memory_order_relaxed),
                     shared_.statements.load(std::memory_order_relaxed), 0, retries()};
    }

  private:
    // The sessions stay the parent's, also in mid-statement: a fork does not wait for them.
    void before_fork() override {
        writers_->freeze(AtFork::abandon);
        readers_->freeze(AtFork::abandon);
        shared_.hosts.freeze();
        shared_.sockets.freeze();
    }
    void after_fork(bool in_child) override {
        shared_.sockets.thaw(in_child);
        shared_.hosts.thaw();
        readers_->thaw(in_child);
        writers_->thaw(in_child);
    }

    Pool::Open opener(bool reads) {
        return [this, reads](Deadline deadline) -> Result<std::unique_ptr<Connection>> {
            auto connection = std::make_unique<MysqlConnection>(library_, target_, reads, shared_);
            const SteadyTime began = std::chrono::steady_clock::now();
            const Result<void> connected = connection->connect(deadline);
            note_reached(outage_, connected, began);
            HOTCOUNT_TRY(connected);
            return std::unique_ptr<Connection>{std::move(connection)};
        };
    }

    static std::vector<std::string> host_names_of(const MysqlTarget& target) {
        std::vector<std::string> names;
        for (const MysqlHost& each : target.hosts) {
            names.push_back(host_name({each.host, static_cast<std::uint16_t>(each.port)}));
        }
        return names;
    }

    Result<Lease> lease(Pool& pool, Deadline deadline) {
        HOTCOUNT_TRY_ASSIGN(Lease leased, pool.lease(deadline));
        static_cast<MysqlConnection&>(*leased).set_deadline(deadline);
        return leased;
    }

    const libmariadb::Library& library_;
    const MysqlTarget target_;
    std::atomic<bool> closed_{false};
    Trouble outage_{name(), kUnavailable, kAvailable};
    MysqlShared shared_;
    const std::shared_ptr<Pool> writers_;
    const std::shared_ptr<Pool> readers_;
};

Result<void> take_options(const Url& url, MysqlTarget& target) {
    const std::map<std::string_view, std::string*> texts{
        {"unix_socket", &target.socket},
        {"ssl_ca", &target.tls_ca},
        {"ssl_cert", &target.tls_cert},
        {"ssl_key", &target.tls_key},
        {"ssl_fingerprint", &target.tls_fingerprint}};
    for (const auto& [option, value] : url.query) {
        if (const auto text = texts.find(option); text != texts.end()) {
            *text->second = value;
            if (option.starts_with("ssl")) target.tls = true;
        } else if (option == "ssl") {
            HOTCOUNT_TRY_ASSIGN(const bool on, url_flag(option, value));
            target.tls = target.tls || on;
        } else if (option == "ssl_verify") {
            HOTCOUNT_TRY_ASSIGN(target.tls_verify, url_flag(option, value));
            target.tls = true;
        } else if (option == "prepare") {
            HOTCOUNT_TRY_ASSIGN(target.prepare, url_flag(option, value));
        } else if (option == "target_session_attrs" && url.hosts.size() > 1) {
            continue;  // check_hosts()
        } else if (option == "server_public_key") {
            return make_error(ErrorCode::config,
                              "URL: option server_public_key: some versions of libmariadb ignore "
                              "the file and encrypt the password for whichever key the server "
                              "sends; use ssl_ca, ssl_fingerprint or unix_socket")
                .about(&ErrorFacts::option, option);
        } else if (option != "charset") {
            return make_error(ErrorCode::config, "URL: unknown option '" + printable(option) +
                                                     "' for " + url.scheme +
                                                     "; it takes: unix_socket, charset, ssl, "
                                                     "ssl_ca, ssl_cert, ssl_key, ssl_verify, "
                                                     "ssl_fingerprint, prepare; with several "
                                                     "hosts also target_session_attrs")
                .about(&ErrorFacts::option, option);
        } else if (value != "utf8mb4") {
            return make_error(ErrorCode::config, "URL: option charset: only utf8mb4 is spoken");
        }
    }
    if (const auto off = url.query.find("ssl"); off != url.query.end() && target.tls) {
        if (off->second == "false" || off->second == "0") {
            return make_error(ErrorCode::config,
                              "URL: ssl=" + off->second + " together with other ssl options");
        }
    }
    if (url.query.contains("ssl_fingerprint")) {
        if (url.query.contains("ssl_ca") || url.query.contains("ssl_verify")) {
            return make_error(ErrorCode::config,
                              "URL: ssl_fingerprint together with ssl_ca or ssl_verify; a "
                              "fingerprint is all that the certificate is held to");
        }
        std::string& digits = target.tls_fingerprint;
        std::erase(digits, ':');
        constexpr std::array kDigits{40U, 56U, 64U, 96U, 128U};  // SHA-1, SHA-2.
        if (std::find(kDigits.begin(), kDigits.end(), digits.size()) == kDigits.end() ||
            digits.find_first_not_of("0123456789abcdefABCDEF") != std::string::npos) {
            return make_error(ErrorCode::config,
                              "URL: option ssl_fingerprint: not a SHA-1 or SHA-2 fingerprint in "
                              "hexadecimal");
        }
    }
    return {};
}

Result<std::shared_ptr<Database>> open_mysql(const Url& url, DatabaseOptions options) {
    constexpr std::uint16_t kPort = 3306;
    MysqlTarget target;
    const bool several = url.hosts.size() > 1;
    if (several) {
        HOTCOUNT_TRY_ASSIGN(target.use, check_hosts(url, kPort));
    }
    // Other clients take "h%6fst" for a host of that very name.
    if (url.host_was_escaped) {
        return make_error(ErrorCode::config, "URL: the host has a percent sign");
    }
    // libmariadb takes such a host for a list of options, which would override ours.
    for (const UrlHost& each : url.hosts) {
        if (each.host.find_first_of(";=") != std::string::npos) {
            return make_error(ErrorCode::config, "URL: the host has a semicolon or an equals sign");
        }
        target.hosts.push_back({each.host, each.port.value_or(kPort)});
    }
    target.user = url.user;
    target.password = url.password;
    target.timeout = options.timeout;
    target.tcp_user_timeout = options.tcp_user_timeout;
    target.idle_timeout = options.idle_timeout;
    target.prepare = options.prepare;
    if (!url.path.empty()) target.database = url.path.substr(1);
    HOTCOUNT_TRY(take_options(url, target));
    if (target.database.empty()) {
        return make_error(ErrorCode::config, "URL: " + url.str() + " names no database (" +
                                                 url.scheme + "://user@host/database)");
    }
    std::string& host = target.hosts.front().host;
    if (!target.socket.empty() && (several || (!host.empty() && host != "localhost"))) {
        return make_error(ErrorCode::config,
                          "URL: both a host (" + host + ") and a unix_socket; one of them");
    }
    if (!target.socket.empty()) host.clear();
    std::string where = target.socket;
    if (where.empty() && !host.empty()) {
        where = several ? host_names(url) : host + ":" + std::to_string(target.hosts.front().port);
    }
    target.name = url.scheme + " " + where + "/" + target.database;
    HOTCOUNT_TRY_ASSIGN(const libmariadb::Library* const library, libmariadb::load());
    const std::string_view version = library->get_client_info();
    if (target.tls_fingerprint.size() > 40 && version < "3.4") {
        return make_error(ErrorCode::config,
                          "URL: option ssl_fingerprint: libmariadb " + std::string{version} +
                              " compares SHA-1 fingerprints, of 40 digits; 3.4 has SHA-2");
    }

    using Key = std::tuple<std::vector<std::pair<std::string, unsigned>>, std::string, std::string,
                           std::string, std::map<std::string, std::string>, Duration::rep,
                           std::size_t, std::size_t, bool, std::optional<Duration>, Duration::rep>;
    static auto* const databases = new SharedObjects<Key, Database>;
    std::vector<std::pair<std::string, unsigned>> hosts;
    for (const MysqlHost& each : target.hosts) hosts.emplace_back(each.host, each.port);
    return databases->find_or_make(
        Key{hosts, target.user, target.password, target.database, url.query,
            options.timeout.count(), options.max_readers, options.max_writers, target.prepare,
            options.idle_timeout, options.tcp_user_timeout.count()},
        [&]() -> Result<std::shared_ptr<Database>> {
            auto database = std::make_shared<MysqlDatabase>(*library, target, options);
            // Opened now, not at the first call, so that a wrong URL or option fails where it is
            // given.
            HOTCOUNT_TRY(database->writer(Deadline::after(options.timeout)));
            warn_of_weak_settings(*database);
            return std::shared_ptr<Database>{std::move(database)};
        });
}

class MysqlGrammar final : public Grammar {
  public:
    std::string_view name() const override { return "mysql"; }
    std::string_view words() const override { return mysql::kWordsSql; }

    bool schema_changes_commit() const override { return true; }
    bool creates_indexes_apart() const override { return false; }
    bool or_nothing_locks() const override { return true; }
    char session_quote() const override { return '`'; }
    std::string_view session_mode() const override { return "@@sql_mode"; }
    bool shares_parents() const override { return true; }
    bool has_returning() const override { return false; }
    std::vector<std::string> settings() const override {
        const Statements session{mysql::kSessionSql, {}};
        return {session["settings_of_server"], session["settings_of_session"],
                session["state_of_galera"], "SHOW GLOBAL STATUS LIKE 'Threads_connected'",
                "SHOW SESSION STATUS LIKE 'Ssl_cipher'"};
    }
};

}  // namespace

const Statements& mysql_catalog() {
    static const Statements kCatalog{mysql::kCatalogSql, {}};
    return kCatalog;
}

const Grammar& mysql_grammar() {
    static const MysqlGrammar kGrammar;
    return kGrammar;
}

Driver mysql_driver() { return {{{"mariadb"}, {"mysql"}}, open_mysql, mysql_grammar()}; }

}  // namespace hotcount::sql
