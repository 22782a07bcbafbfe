// How a PostgresConnection is made: one attempt after another, each of them polled, and no password
// for a server that asks for it in the open.
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include "authentication.hpp"
#include "base/secrets.hpp"
#include "connection.hpp"
#include "hotcount_embedded/dialects/postgres/sql.hpp"
#include "sql/dialect.hpp"
#include "sql/pool.hpp"
#include "sql/statements.hpp"

namespace hotcount::sql {
namespace {

using Reader = AuthenticationReader;

// WITH ... AS MATERIALIZED.
constexpr OldestServer kOldest{"PostgreSQL", {12, 0, 0}};

bool is_unix_socket(int descriptor) {
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    return ::getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size) == 0 &&
           address.ss_family == AF_UNIX;
}

}  // namespace

Result<void> PostgresConnection::connect(Deadline deadline, bool waits_for_room) {
    if (Hosts& hosts = options_.shared->hosts; hosts.several()) {
        return hosts.find(deadline, waits_for_room, [this](std::size_t host, Deadline until) {
            return dial_host(host, until);
        });
    }
    std::optional<Error> full;
    for (int attempt = 1;; ++attempt) {
        auto connected = dial(deadline);
        if (connected) return connected;
        disconnect();
        give_up();
        // The server starts, is full, or will be replaced: another attempt may succeed.
        const Error& error = connected.error();
        if (is_out_of_room(error)) {
            if (!waits_for_room) return connected;
            full = error;
        }
        const bool transient =
            error.server_code == "57P03" || is_out_of_room(error) ||
            (error.code == ErrorCode::unavailable && options_.shared->primary.is_looking());
        if (transient && pause_before_retry(kServerBackoff, attempt, deadline)) continue;
        const bool late = is_out_of_room(error) || error.code == ErrorCode::deadline;
        if (full && late) return no_room_in_time(*std::move(full), attempt);
        return connected;
    }
}

// One of several.
Result<void> PostgresConnection::dial_host(std::size_t host, Deadline deadline) {
    host_ = host;
    session_.clear();
    replaced_ = false;
    const SteadyTime began = std::chrono::steady_clock::now();
    auto connected = dial(deadline);
    if (connected) connected = meet_host(deadline, began);
    if (!connected) {
        disconnect();
        give_up();
    }
    return connected;
}

// When to look for another primary next. Only a session that is known to write, at one of several
// hosts, looks.
SteadyTime PostgresConnection::next_look() const {
    if (session_.empty() || !options_.shared->hosts.wants_writes()) return SteadyTime::max();
    return std::max(sent_, looked_) + kSilence;
}

// A primary that was stopped or cut off is silent. If another host takes writes by now, no answer
// of the old primary counts.
bool PostgresConnection::was_replaced(SteadyTime limit) {
    Hosts& hosts = options_.shared->hosts;
    const std::optional<bool> other =
        hosts.any_other(host_, limit, [&](std::size_t host, Deadline until) {
            PostgresConnection asked{options_};
            return asked.dial_host(host, until);
        });
    looked_ = std::chrono::steady_clock::now();
    if (!other) looked_ -= kSilence - Hosts::kAsksEvery;
    replaced_ = other.value_or(false);
    return replaced_;
}

// Whether the host will do, and how the session is found again after it was lost.
Result<void> PostgresConnection::meet_host(Deadline deadline, SteadyTime began) {
    static const Statement kHost{Statements{postgres::kSessionSql, {}}["host"]};
    HOTCOUNT_TRY(ask_once(kHost, {}, deadline));
    const auto column = [&](int which) -> std::string_view {
        return pq_.PQgetisnull(answer_.get(), 0, which) == 0
                   ? pq_.PQgetvalue(answer_.get(), 0, which)
                   : "";
    };
    if (answer_ == nullptr || pq_.PQntuples(answer_.get()) != 1) {
        return make_error(ErrorCode::unavailable, options_.name + ": the host answers no question");
    }
    std::uint64_t cluster = 0;
    const std::string_view said = column(1);
    std::from_chars(said.data(), said.data() + said.size(), cluster);
    HOTCOUNT_TRY(options_.shared->hosts.check_cluster(host_, cluster));
    HOTCOUNT_TRY(options_.shared->hosts.takes(host_, column(0) == "t", began));
    std::uint64_t timeline = 0;
    constexpr int kHexadecimal = 16;
    const std::string_view digits = column(3);
    std::from_chars(digits.data(), digits.data() + digits.size(), timeline, kHexadecimal);
    HOTCOUNT_TRY(options_.shared->hosts.check_timeline(host_, timeline));
    // Behind a pooler the server's session changes, so its name is of no use.
    session_ = keeps_prepared() ? std::string{column(2)} : std::string{};
    return {};
}

Result<void> PostgresConnection::dial(Deadline deadline) {
    link_ = Link::usable;
    term_ = options_.shared->primary.term();
    std::vector<const char*> names;
    std::vector<const char*> values;
    for (const auto& [name, value] : options_.parameters[host_]) {
        names.push_back(name.c_str());
        values.push_back(value.c_str());
    }
    names.push_back(nullptr);
    values.push_back(nullptr);
    handle_ = pq_.PQconnectStartParams(names.data(), values.data(), 0);
    if (handle_ == nullptr) {
        return make_error(ErrorCode::capacity, options_.name + ": out of memory");
    }
    HOTCOUNT_TRY(await_connection(deadline));
    pq_.PQsetErrorVerbosity(handle_, pq::kErrorsDefault);
    pq_.PQsetnonblocking(handle_, 1);
    pq_.PQenterPipelineMode(handle_);
    connected_ = std::chrono::steady_clock::now();
    if (const char* const version = pq_.PQparameterStatus(handle_, "server_version")) {
        HOTCOUNT_TRY(check_version(options_.name, version, kOldest));
    }
    began_read_only_ = says_reads_only();
    HOTCOUNT_TRY(look_for_pooler(deadline));
    // A pooler repeats what a server reported when the pooler connected to it.
    if (keeps_prepared() && is_primary()) options_.shared->primary.has_written(term_);
    return {};
}

// If the process number that the client received is not the server's, there is a pooler in between:
// a statement prepared now may be missing in the next transaction, or be another client's.
Result<void> PostgresConnection::look_for_pooler(Deadline deadline) {
    static const Statement kProcess{Statements{postgres::kSessionSql, {}}["process"]};
    if (!keeps_prepared()) return {};
    const std::string process = std::to_string(pq_.PQbackendPID(handle_));
    HOTCOUNT_TRY(ask_once(kProcess, std::array{Value{std::string_view{process}}}, deadline));
    // A server that is not PostgreSQL may answer without rows.
    const char* const answered = answer_ != nullptr && pq_.PQntuples(answer_.get()) == 1
                                     ? pq_.PQgetvalue(answer_.get(), 0, 0)
                                     : nullptr;
    if (answered == nullptr || answered != process) {
        options_.shared->pooled.store(true, std::memory_order_relaxed);
    }
    return {};
}

// While connecting. Not by name: it may be taken in a shared session.
Result<void> PostgresConnection::ask_once(const Statement& question,
                                          std::span<const Value> parameters, Deadline deadline) {
    if (!queue(question, parameters, Expected::Kind::question) || !queue_sync()) {
        return lost_connection(false);
    }
    if (!settle(deadline.time(), &deadline)) {
        if (is_closed()) return lost_connection(false);
        return make_error(
            ErrorCode::deadline,
            options_.name + ": the deadline passed while connecting; nothing was applied");
    }
    if (refusal_ != nullptr) return refused();
    return {};
}

Error PostgresConnection::late_connecting(Deadline deadline) const {
    if (!deadline.passed()) {
        return make_error(ErrorCode::unavailable,
                          options_.name + ": no connection within connect_timeout");
    }
    return make_error(
        ErrorCode::deadline,
        options_.name + ": the deadline passed while connecting; nothing was applied");
}

Result<void> PostgresConnection::await_connection(Deadline deadline) {
    pq_.PQsetNoticeReceiver(
        handle_,
        [](void* self, const pg_result* notice) {
            static_cast<PostgresConnection*>(self)->take_notice(notice);
        },
        this);
    // So that the message has the SQLSTATE: libpq shows it nowhere else before a session begins.
    pq_.PQsetErrorVerbosity(handle_, pq::kErrorsVerbose);
    SteadyTime until = deadline.time();
    if (options_.connect_timeout) {
        until = std::min(until, std::chrono::steady_clock::now() + *options_.connect_timeout);
    }
    int progress = pq::kPollingWriting;
    if (pq_.PQstatus(handle_) == pq::kConnectionBad) progress = pq::kPollingFailed;
    Reader reader;
    while (progress != pq::kPollingOk) {
        remember_secret(password());
        if (progress == pq::kPollingFailed) {
            return connect_failure(pq_, handle_, options_.name);
        }
        if (guards_password()) {
            if (pq_.PQsslInUse(handle_) == 0) {
                HOTCOUNT_TRY_ASSIGN(progress, authenticate_in_the_open(until, deadline));
                continue;
            }
            watch_socket(pq_.PQsocket(handle_));
            if (!wait(POLLIN, until, &deadline)) return late_connecting(deadline);
            const Reader::Finding finding = peek_into_tls(reader);
            if (finding == Reader::Finding::nothing_yet) continue;
            HOTCOUNT_TRY(check_finding(finding));
        } else {
            watch_socket(pq_.PQsocket(handle_));
            if (!wait(progress == pq::kPollingReading ? POLLIN : POLLOUT, until, &deadline)) {
                return late_connecting(deadline);
            }
        }
        watch_socket(-1);  // libpq may try the next address, with another socket.
        progress = pq_.PQconnectPoll(handle_);
    }
    watch_socket(pq_.PQsocket(handle_));
    return {};
}

// Whether libpq is about to answer the server's authentication request, with a password that an
// unauthenticated server must not see in clear text.
bool PostgresConnection::guards_password() const {
    if (options_.trusts_server || pq_.PQstatus(handle_) != pq::kConnectionAwaitingResponse) {
        return false;
    }
    if (password().empty()) return false;
    // If Kerberos encrypts the connection, it has authenticated the server.
    return pq_.PQgssEncInUse(handle_) == 0 && !is_unix_socket(pq_.PQsocket(handle_));
}

// libpq reads one record of TLS at a time, and a peek shows it to its end. Without a record libpq must
// not read: its rest may arrive between our look and libpq's.
Reader::Finding PostgresConnection::peek_into_tls(Reader& reader) {
    constexpr int kWantsRead = 2;  // SSL_ERROR_WANT_READ
    void* const ssl = pq_.PQsslStruct(handle_, "OpenSSL");
    // A connection that cannot be inspected is not trusted.
    if (ssl == nullptr || pq_.SSL_peek == nullptr || pq_.SSL_get_error == nullptr ||
        pq_.ERR_clear_error == nullptr) {
        return Reader::Finding::clear_text;
    }
    std::array<char, 1U << 14U> bytes{};  // The longest record.
    pq_.ERR_clear_error();                // SSL_get_error also reads errors of earlier calls.
    const int got = pq_.SSL_peek(ssl, bytes.data(), static_cast<int>(bytes.size()));
    const bool nothing_yet = got <= 0 && pq_.SSL_get_error(ssl, got) == kWantsRead;
    // If something is wrong, libpq will meet it itself.
    pq_.ERR_clear_error();
    if (nothing_yet) return Reader::Finding::nothing_yet;
    if (got <= 0) return Reader::Finding::harmless;
    return reader.see({bytes.data(), static_cast<std::size_t>(got)});
}

Result<void> PostgresConnection::check_finding(Reader::Finding finding) const {
    switch (finding) {
        case Reader::Finding::nothing_yet:
        case Reader::Finding::harmless:
            return {};
        case Reader::Finding::excessive:
            return make_error(
                ErrorCode::unavailable,
                options_.name + ": the server said more than " + std::to_string(Reader::kMost) +
                    " bytes before it had authenticated anybody; nothing was applied");
        case Reader::Finding::clear_text:
            break;
    }
    return make_error(ErrorCode::auth, options_.name + kClearTextRefused);
}

// Passes the server's messages on one by one, and libpq's answers. Returns how libpq is to go on.
Result<int> PostgresConnection::authenticate_in_the_open(SteadyTime until, Deadline deadline) {
    const int descriptor = pq_.PQsocket(handle_);
    Interposed between{descriptor};
    if (!between.ok()) {
        return make_error(ErrorCode::capacity,
                          options_.name + ": no descriptor left to connect with");
    }
    watch_socket(between.server());
    Reader reader;
    int progress = pq::kPollingReading;
    const auto done = [&](auto result) {
        watch_socket(-1);
        return result;
    };
    while (pq_.PQstatus(handle_) == pq::kConnectionAwaitingResponse) {
        if (progress == pq::kPollingFailed) break;
        if (!wait_on(between.server(), POLLIN, until, &deadline)) {
            return done(Result<int>{late_connecting(deadline)});
        }
        std::string message;
        const Interposed::Read read = between.read_message(message);
        if (read == Interposed::Read::nothing_yet) continue;
        if (read == Interposed::Read::excessive) {
            return done(Result<int>{check_finding(Reader::Finding::excessive).error()});
        }
        if (read == Interposed::Read::end) {
            between.end();  // libpq's own error explains it best.
            progress = pq_.PQconnectPoll(handle_);
            break;
        }
        if (auto found = check_finding(reader.see(message)); !found) {
            return done(Result<int>{found.error()});
        }
        if (!between.give_to_libpq(message)) {
            return done(Result<int>{make_error(
                ErrorCode::unavailable, options_.name + ": libpq let go of the connection")});
        }
        progress = pq_.PQconnectPoll(handle_);
        std::string answer = between.take_from_libpq();
        while (!answer.empty()) {
            if (!wait_on(between.server(), POLLOUT, until, &deadline)) {
                return done(Result<int>{late_connecting(deadline)});
            }
            const ssize_t sent =
                ::send(between.server(), answer.data(), answer.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
            if (sent < 0 && errno != EAGAIN && errno != EINTR) break;
            if (sent > 0) answer.erase(0, static_cast<std::size_t>(sent));
        }
    }
    // In other states libpq has closed the descriptor, or will with the connection.
    const int status = pq_.PQstatus(handle_);
    if (pq_.PQsocket(handle_) == descriptor && progress != pq::kPollingFailed &&
        (status == pq::kConnectionAuthOk || status == pq::kConnectionOk)) {
        between.give_back();
    }
    return done(Result<int>{progress});
}

}  // namespace hotcount::sql
