// How a MysqlConnection is made: one attempt after another, no password for strangers, and the
// session set up as our statements need it.
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/base/fork.hpp>

#include "base/secrets.hpp"
#include "connection.hpp"
#include "sql/backoff.hpp"
#include "sql/pool.hpp"

namespace hotcount::sql {

namespace lib = libmariadb;

namespace {

// Methods that answer a challenge and show the password to nobody.
constexpr const char* kChallengeMethods =
    "mysql_native_password,client_ed25519,parsec,auth_gssapi_client";

const char* or_null(const std::string& text) { return text.empty() ? nullptr : text.c_str(); }

// The method that a server asks for in its answer to ours, if that answer is next to be read: a
// packet of three bytes of length, a number, 0xfe and a name that ends in a NUL.
std::string asked_method(int socket) {
    std::array<char, 128> bytes{};
    const ssize_t got = ::recv(socket, bytes.data(), bytes.size() - 1, MSG_PEEK | MSG_DONTWAIT);
    constexpr ssize_t kName = 5;
    if (got <= kName || bytes[kName - 1] != '\xfe') return {};
    return printable(std::string_view{bytes.data() + kName});
}

}  // namespace

std::int64_t patience_for(Duration limit) {
    return std::chrono::ceil<std::chrono::seconds>(
               std::min<Duration>(limit, std::chrono::hours{24}))
               .count() +
           1;
}

Result<void> MysqlConnection::connect(Deadline deadline) {
    for (int attempt = 1;; ++attempt) {
        auto connected = dial(deadline);
        if (connected) connected = set_up();
        if (connected) return connected;
        drop();
        // It has no room for a prepared statement, or is about to be replaced: another attempt may
        // succeed. If the server is full, the pool waits for room.
        const Error& error = connected.error();
        const bool passes = error.condition == SqlCondition::too_many_statements ||
                            (error.code == ErrorCode::unavailable && !is_out_of_room(error) &&
                             shared_.primary.is_looking());
        if (!passes || !pause_before_retry(kServerBackoff, attempt, deadline)) return connected;
    }
}

Result<void> MysqlConnection::dial(Deadline deadline) {
    deadline_ = deadline;
    broken_ = false;
    term_ = shared_.primary.term();
    process_ = fork_generation();
    session_ = library_.init(nullptr);
    if (session_ == nullptr) return make_error(ErrorCode::capacity, target_.name + ": no memory");
    library_.options(session_, lib::kNonblocking, nullptr);
    library_.options(session_, lib::kCharset, "utf8mb4");
    // A server may ask a client for any of its files; this refuses.
    const unsigned none = 0;
    library_.options(session_, lib::kLocalInfile, &none);
    const auto seconds = std::chrono::ceil<std::chrono::seconds>(
        std::min<Duration>(deadline.remaining(), std::chrono::hours{1}));
    const auto limit = static_cast<unsigned>(std::max<std::int64_t>(1, seconds.count()));
    library_.options(session_, lib::kConnectTimeout, &limit);
    if (target_.socket.empty() && !target_.host.empty()) {
        library_.options(session_, lib::kProtocol, &lib::kProtocolTcp);
    }
    const char yes = 1;
    const char no = 0;
    if (target_.tls) {
        library_.options(session_, lib::kTlsEnforce, &yes);
        library_.options(session_, lib::kTlsCa, or_null(target_.tls_ca));
        library_.options(session_, lib::kTlsCert, or_null(target_.tls_cert));
        library_.options(session_, lib::kTlsKey, or_null(target_.tls_key));
    }
    library_.options(session_, lib::kTlsVerify, target_.tls && target_.tls_verify ? &yes : &no);

    remember_secret(target_.password);
    keep_password_from_strangers();

    lib::Session* connected = nullptr;
    const bool in_time = drive(
        [&] {
            const int wanted = library_.real_connect_start(
                &connected, session_, or_null(target_.host), or_null(target_.user),
                or_null(target_.password), or_null(target_.database), target_.port,
                or_null(target_.socket), 0);
            if (wanted != 0) {
                watch_socket();
            }
            return wanted;
        },
        [&](int ready) {
            // For a message only: the library does not tell.
            if (auto method = asked_method(library_.get_socket(session_)); !method.empty()) {
                asked_method_ = std::move(method);
            }
            return library_.real_connect_cont(&connected, session_, ready);
        });
    if (!in_time) return left_at_deadline(MysqlStage::connecting);
    if (connected == nullptr) {
        forget_socket();
        Error error = failed(MysqlStage::connecting);
        broken_ = true;
        return error;
    }
    watch_socket();
    id_ = library_.thread_id(session_);
    return identify();
}

// A server chooses how it wants to be shown the password. Without verified TLS we accept only
// methods that answer a challenge. MySQL's two sha2 methods encrypt the password for whichever key
// the server sends, unless we know its key.
void MysqlConnection::keep_password_from_strangers() {
    const bool local = target_.host.empty();  // A Unix socket.
    if (target_.password.empty() || local || (target_.tls && target_.tls_verify)) return;
    std::string methods = kChallengeMethods;
    // Over TLS these methods need no key, and send the password as it is.
    if (!target_.server_public_key.empty() && !target_.tls) {
        library_.options(session_, lib::kServerPublicKey, target_.server_public_key.c_str());
        methods += ",caching_sha2_password,sha256_password";
    }
    library_.options(session_, lib::kRestrictedAuth, methods.c_str());
}

Result<void> MysqlConnection::identify() {
    // read_only is a number, and from MariaDB 12 on a word.
    static const Statement kWhich{
        "SELECT CONCAT_WS(' ', @@hostname, @@port, @@datadir, @@pid_file), "
        "CAST(@@global.read_only AS CHAR) NOT IN ('0', 'OFF')"};
    const RowVisitor see = [&](const Row& row) -> Result<void> {
        server_ = row.text(0);
        reads_only_ = row.integer(1) != 0;
        return {};
    };
    HOTCOUNT_TRY(query(kWhich, {}, see));
    identified_ = std::chrono::steady_clock::now();
    if (!reads_only_) shared_.primary.has_written(term_);
    return {};
}

Result<void> MysqlConnection::set_up() {
    // Strings as they are written, names in double quotes, no value changed to fit its column.
    HOTCOUNT_TRY(
        tell(std::string{"SET SESSION sql_mode = 'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,"
                         "NO_ENGINE_SUBSTITUTION,STRICT_ALL_TABLES', foreign_key_checks = 1, "
                         "autocommit = "} +
                 (reads_ ? "1" : "0"),
             MysqlStage::statement));
    HOTCOUNT_TRY(be_patient(patience_for(target_.timeout)));
    HOTCOUNT_TRY(tell(reads_ ? "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY"
                             : "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
                      MysqlStage::statement));
    return {};
}

// How long the server lets this session wait for a lock, and hold its own locks while it hears
// nothing from us: longer than our deadline, in case that we vanish. A transaction that has written
// is given up sooner, because others wait for it; ours never pause that long.
Result<void> MysqlConnection::be_patient(std::int64_t seconds) {
    constexpr std::int64_t kMostIdle = 5;
    const std::string text = std::to_string(seconds);
    const std::string idle = std::to_string(std::min(seconds, kMostIdle));
    // The comment is for MariaDB only.
    HOTCOUNT_TRY(tell("SET SESSION innodb_lock_wait_timeout = " + text + ", lock_wait_timeout = " +
                          text + " /*M! , idle_transaction_timeout = " + text +
                          ", idle_write_transaction_timeout = " + idle + " */",
                      MysqlStage::statement));
    patience_ = seconds;
    return {};
}

}  // namespace hotcount::sql
