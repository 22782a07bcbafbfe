// How a MysqlConnection is made: one attempt after another, no password for strangers, and the
// session set up as our statements need it.
#include <sys/socket.h>
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif

#include <algorithm>
#include <array>
#include <fstream>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/fork.hpp>
#include <mutex>
#include <optional>

#include "base/secrets.hpp"
#include "connection.hpp"
#include "dialled_socket.hpp"
#include "hotcount_embedded/dialects/mysql/sql.hpp"
#include "sql/dialect.hpp"
#include "sql/pool.hpp"
#include "sql/statements.hpp"

namespace hotcount::sql {

namespace lib = libmariadb;

namespace {

// Methods that answer a challenge and do not show the password.
constexpr const char* kChallengeMethods =
    "mysql_native_password,client_ed25519,parsec,auth_gssapi_client";

// How caching_sha2_password's plugin gives up: built with OpenSSL, and with GnuTLS.
constexpr unsigned kUnknownError = 2000;
constexpr unsigned kPluginFailed = 2061;
constexpr unsigned kLostConnection = 2013;

const char* or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

// The method that the server requests in its answer to ours, if that answer is the next packet:
// three bytes of length, a number, 0xfe and a name that ends in a NUL.
std::string asked_method(int socket) {
    std::array<char, 128> bytes{};
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size() - 1, MSG_PEEK | MSG_DONTWAIT);
    constexpr ssize_t kName = 5;
    if (got <= kName || bytes[kName - 1] != '\xfe') return {};
    return printable(std::string_view{bytes.data() + kName});
}

bool is_connected(int socket) {
    sockaddr_storage peer{};
    socklen_t size = sizeof peer;
    return ::getpeername(socket, reinterpret_cast<sockaddr*>(&peer), &size) == 0;
}

int failure_of(int socket) {
    int error = 0;
    socklen_t size = sizeof error;
    return ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

// A file of one byte, which is no RSA key, for as long as a login takes.
//
// If a server answers a challenge of caching_sha2_password by asking for the password itself, the
// library encrypts it for the key in a file, or if it cannot load one, for the key that the server
// sends. With this file it loads a key that it cannot use, and gives up before it sends anything.
// The file has one byte because many versions load no larger one, and some no empty one.
class NoKeyFile {
  public:
    NoKeyFile() {
#ifdef __linux__
        constexpr unsigned kNotExecutable = 8;  // Hardened kernels insist on it, old ones lack it.
        file_ = ::memfd_create("hotcount-no-key", MFD_CLOEXEC | kNotExecutable);
        if (file_ < 0) file_ = ::memfd_create("hotcount-no-key", MFD_CLOEXEC);
        if (file_ < 0 || ::write(file_, "-", 1) != 1) return;
        std::string path = "/proc/self/fd/" + std::to_string(file_);
        // Where /proc is not mounted, the library could not read it.
        std::ifstream reader{path};
        if (std::string{std::istreambuf_iterator<char>{reader}, {}} == "-") path_ = path;
#endif
    }
    NoKeyFile(const NoKeyFile&) = delete;
    NoKeyFile& operator=(const NoKeyFile&) = delete;
    ~NoKeyFile() {
        if (file_ >= 0) ::close(file_);
    }

    /// Empty if the system has no place for such a file.
    const std::string& path() const { return path_; }

  private:
    int file_{-1};
    std::string path_;
};

// Whether a password could be sent to a server that need not authenticate itself first. At a
// loopback address libmariadb 3.4 accepts any certificate unless the URL names an authority.
bool is_shown_to_strangers(const MysqlTarget& target, const std::string& host) {
    const bool local = host.empty();  // A Unix socket.
    if (target.password.empty() || local || !target.tls_fingerprint.empty()) return false;
    const bool may_be_loopback = host == "127.0.0.1" || host == "::1";
    return !target.tls || !target.tls_verify || (may_be_loopback && target.tls_ca.empty());
}

// libmariadb sets TLS up, and loads plugins, under locks of its own. In a child that is forked
// during such a call they would stay locked for ever. So a fork waits for the login's call under
// way, which does not block.
class LoginGate final : ForkAware {
  public:
    LoginGate() { start_watching_forks(); }
    static LoginGate& get() {
        static auto* const gate = new LoginGate;
        return *gate;
    }
    int pass(const auto& call) {
        const std::lock_guard passing(mutex_);
        return call();
    }

  private:
    void before_fork() override { mutex_.lock(); }
    void after_fork(bool) override { mutex_.unlock(); }

    std::mutex mutex_;  // Not a shared_mutex, which a forked child could not unlock.
};

// SKIP LOCKED and BEGIN NOT ATOMIC as a prepared statement; index hints in a DELETE.
constexpr OldestServer kOldestMariaDb{"MariaDB", {10, 6, 3}};
constexpr OldestServer kOldestMySql{"MySQL", {8, 0, 20}};

// How long the server lets a session wait for a lock: longer than our deadline, in case that the
// client vanishes. A transaction from which the server hears nothing is ended sooner, because
// others wait for its locks. Ours are idle only while write_behind makes or closes a stream in
// Redis.
//
// MySQL has a limit for idle sessions only, in a transaction or not. Idle sessions of ours are
// closed before it is reached.
std::string patient(std::int64_t seconds, std::optional<Duration> idle_timeout) {
    constexpr std::int64_t kMostIdle = 5;
    const std::string text = std::to_string(seconds);
    const std::string idle = std::to_string(std::min(seconds, kMostIdle));
    // The first comment is for MariaDB only, the second one for MySQL.
    std::string settings = "SESSION innodb_lock_wait_timeout = " + text +
                           ", lock_wait_timeout = " + text +
                           " /*M! , idle_transaction_timeout = " + idle + " */";
    if (idle_timeout) {
        const auto unused = std::chrono::ceil<std::chrono::seconds>(
            std::min<Duration>(*idle_timeout, std::chrono::hours{8}));
        settings += " /*!80000 , wait_timeout = CAST(LEAST(@@global.wait_timeout, " +
                    std::to_string(unused.count() + kMostIdle) + ") AS SIGNED) */";
    }
    return settings;
}

}  // namespace

std::int64_t patience_for(Duration limit) {
    return std::chrono::ceil<std::chrono::seconds>(
               std::min<Duration>(limit, std::chrono::hours{24}))
               .count() +
           1;
}

Result<void> MysqlConnection::connect(Deadline deadline) {
    if (shared_.hosts.several()) {
        return shared_.hosts.find(deadline, false, [this](std::size_t host, Deadline until) {
            return dial_host(host, until);
        });
    }
    for (int attempt = 1;; ++attempt) {
        auto connected = dial(deadline);
        if (connected) connected = set_up();
        if (connected) return connected;
        drop();
        // It has no room for a prepared statement, or is about to be replaced: another attempt may
        // succeed. If the server is full, the pool waits for room.
        const Error& error = connected.error();
        const bool transient = error.condition == SqlCondition::too_many_statements ||
                               (error.code == ErrorCode::unavailable && !is_out_of_room(error) &&
                                shared_.primary.is_looking());
        if (!transient || !pause_before_retry(kServerBackoff, attempt, deadline)) return connected;
    }
}

Result<void> MysqlConnection::dial(Deadline deadline) {
    deadline_ = deadline;
    broken_ = false;
    lost_by_.reset();
    id_ = 0;
    term_ = shared_.primary.term();
    process_ = fork_generation();
    session_ = library_.init(nullptr);
    if (session_ == nullptr) return make_error(ErrorCode::capacity, target_.name + ": no memory");
    remember_secret(target_.password);
    const bool restricted = is_shown_to_strangers(target_, host().host);
    // Over any TLS, caching_sha2_password goes on to send the password as it is.
    std::optional<NoKeyFile> no_key;
    if (restricted && !target_.tls) no_key.emplace();
    if (no_key && shared_.first_logins.are_paused()) return first_login_refused(target_.name);
    HOTCOUNT_TRY(set_options(deadline, restricted, no_key ? no_key->path() : std::string{}));

    std::optional<DialledSocket> own;
    std::optional<FullAddress> full;
    Routes routes;
    if (!target_.socket.empty()) {
        own.emplace(AF_UNIX, SOCK_STREAM);
        own->connect(target_.socket);
        if (own->error() != 0) return unreached(own->error());
        full.emplace();
    } else if (!host().host.empty()) {
        routes = count_routes(host().host, host().port);
        if (routes.known == 0 && routes.missing > 0) return unreached(routes.error);
    }
    const bool is_given = full && !full->name().empty();

    LoginGate& gate = LoginGate::get();
    lib::Session* connected = nullptr;
    bool reached = routes.missing == 0;
    std::size_t failed_routes = 0;
    const bool in_time = drive(
        [&] {
            const int wanted = library_.real_connect_start(
                &connected, session_, or_null(host().host), or_null(target_.user),
                or_null(target_.password), or_null(target_.database), host().port,
                or_null(is_given ? full->name() : target_.socket), 0);
            if (wanted != 0) {
                if (is_given) own->give_to(library_.get_socket(session_));
                watch_socket();
            }
            own.reset();
            return wanted;
        },
        [&](int ready) {
            const int socket = library_.get_socket(session_);
            reached = reached || is_connected(socket);
            // The next address has no route: the library must not try it.
            if (!reached && ++failed_routes == routes.known) {
                routes.error = failure_of(socket);
                return 0;
            }
            // For a message: the library does not report the method.
            if (auto method = asked_method(socket); !method.empty()) {
                asked_method_ = std::move(method);
            }
            return gate.pass(
                [&] { return library_.real_connect_cont(&connected, session_, ready); });
        });
    if (!in_time) return left_at_deadline(MysqlStage::connecting);
    if (!reached && failed_routes == routes.known) return unreached(routes.error);
    if (connected == nullptr) {
        forget_socket();
        const unsigned number = library_.error_number(session_);
        Error error = failed(MysqlStage::connecting);
        broken_ = true;
        // A Unix socket whose queue is full: connect() returns EAGAIN, which the library takes for
        // "under way", and the next read fails with EINVAL.
        if (number == kLostConnection &&
            error.message.find("system error: 22") != std::string::npos) {
            error.condition = SqlCondition::too_many_connections;
        }
        if (no_key && (number == kUnknownError || number == kPluginFailed)) {
            // OpenSSL's queue has an error about the file, which the thread's next user would find.
            if (library_.clear_openssl_errors != nullptr) library_.clear_openssl_errors();
            shared_.first_logins.refuse();
            return first_login_refused(target_.name);
        }
        return error;
    }
    watch_socket();
    shared_.first_logins.accept();
    id_ = library_.thread_id(session_);
    return identify();
}

// In the library's words. A Unix socket whose queue is full says EAGAIN.
Error MysqlConnection::unreached(int cause) {
    constexpr unsigned kNoLocalServer = 2002;
    constexpr unsigned kNoServer = 2003;
    const bool local = !target_.socket.empty();
    const std::string text =
        (local ? "Can't connect to local server through socket '" + target_.socket + "'"
               : "Can't connect to server on '" + host().host + "'") +
        " (" + std::to_string(cause) + ")";
    Error error =
        refused(MysqlStage::connecting, local ? kNoLocalServer : kNoServer, "HY000", text.c_str());
    if (cause == EAGAIN) error.condition = SqlCondition::too_many_connections;
    return error;
}

// A server chooses the method of authentication. `restricted`: only from those that answer a
// challenge. `no_key`: the path of a NoKeyFile, or empty.
Result<void> MysqlConnection::set_options(Deadline deadline, bool restricted,
                                          const std::string& no_key) {
    bool has_all = true;
    const auto set = [&](lib::Option option, const void* value) {
        has_all = library_.options(session_, option, value) == 0 && has_all;
    };
    set(lib::kNonblocking, nullptr);
    set(lib::kCharset, "utf8mb4");
    // A server may ask a client for any of its files; this refuses.
    const unsigned none = 0;
    set(lib::kLocalInfile, &none);
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(
        std::min<Duration>(deadline.remaining(), std::chrono::hours{1}));
    const auto limit = static_cast<unsigned>(std::max<std::int64_t>(1, seconds.count()));
    set(lib::kConnectTimeout, &limit);
    if (target_.socket.empty() && !host().host.empty()) set(lib::kProtocol, &lib::kProtocolTcp);
    const char yes = 1;
    const char no = 0;
    const bool pinned = !target_.tls_fingerprint.empty();
    if (target_.tls) {
        set(lib::kTlsEnforce, &yes);
        set(lib::kTlsCa, or_null(target_.tls_ca));
        set(lib::kTlsCert, or_null(target_.tls_cert));
        set(lib::kTlsKey, or_null(target_.tls_key));
        if (pinned) set(lib::kTlsFingerprint, target_.tls_fingerprint.c_str());
    }
    // The certificate with that fingerprint may be for any name.
    set(lib::kTlsVerify, target_.tls && target_.tls_verify && !pinned ? &yes : &no);
    if (restricted) {
        std::string methods = kChallengeMethods;
        if (!no_key.empty()) {
            set(lib::kServerPublicKey, no_key.c_str());
            methods += ",caching_sha2_password";
        }
        set(lib::kRestrictedAuth, methods.c_str());
    }
    if (has_all) return {};
    return make_error(ErrorCode::config, target_.name + ": libmariadb " +
                                             library_.get_client_info() +
                                             " lacks an option of 3.3 that hotcount needs");
}

Result<void> MysqlConnection::identify() {
    static const Statement kWhich{Statements{mysql::kSessionSql, {}}["identify"]};
    const RowVisitor see = [&](const Row& row) -> Result<void> {
        server_ = row.text(0);
        reads_only_ = row.integer(1) != 0;
        const bool is_mariadb = row.integer(3) != 0;
        in_cluster_ = row.integer(4) != 0;
        product_ = is_mariadb ? 1 : 2;
        return check_version(target_.name, row.text(2), is_mariadb ? kOldestMariaDb : kOldestMySql);
    };
    // Not run(), which might have to commit: the session is not set up yet.
    HOTCOUNT_TRY(run_prepared(kWhich, {}, &see));
    identified_ = std::chrono::steady_clock::now();
    if (!reads_only_) shared_.primary.has_written(term_);
    return {};
}

Result<void> MysqlConnection::set_up() {
    const std::int64_t patience = patience_for(target_.timeout);
    const Statements session{
        mysql::kSessionSql,
        {{"reads", flag(reads_)}, {"patience", patient(patience, target_.idle_timeout)}}};
    HOTCOUNT_TRY(tell(session["set_up"], MysqlStage::statement));
    patience_ = patience;
    return in_cluster_ ? tell(session["wait_for_cluster"], MysqlStage::statement) : Result<void>{};
}

Result<void> MysqlConnection::be_patient(std::int64_t seconds) {
    HOTCOUNT_TRY(tell("SET " + patient(seconds, target_.idle_timeout), MysqlStage::statement));
    patience_ = seconds;
    return {};
}

}  // namespace hotcount::sql
