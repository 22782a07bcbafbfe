#include "connection.hpp"

#include <hiredis/hiredis.h>
#include <hiredis/hiredis_ssl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <hotcount/base/interrupt.hpp>
#include <string>
#include <vector>

#include "../base/readable.hpp"
#include "encode.hpp"
#include "error_word.hpp"

namespace hotcount::redis {
namespace {

// What TLS is given at a time.
constexpr std::size_t kSliceBytes = 16 * 1024;

const std::string* error_text(const Reply& reply) {
    const auto* error = std::get_if<ReplyError>(&reply.value);
    return error == nullptr ? nullptr : &error->message;
}

}  // namespace

Connection::Connection(redisContext* context, const Options& options)
    : context_(context), options_(options), replies_(options.max_reply_bytes) {}

Connection::~Connection() { redisFree(context_); }

Error Connection::unavailable(std::string_view why) const {
    return make_error(ErrorCode::unavailable, options_.address() + ": " + std::string{why});
}

Result<std::unique_ptr<Connection>> Connection::open(const Options& options, redisSSLContext* tls,
                                                     std::span<const Script* const> scripts,
                                                     Deadline deadline) {
    redisOptions how{};
    if (options.unix_path.empty()) {
        REDIS_OPTIONS_SET_TCP(&how, options.host.c_str(), options.port);
    } else {
        REDIS_OPTIONS_SET_UNIX(&how, options.unix_path.c_str());
    }
    how.options |= REDIS_OPT_NONBLOCK;
    std::unique_ptr<Connection> connection{new Connection{redisConnectWithOptions(&how), options}};
    redisContext* const context = connection->context_;
    if (context == nullptr) return make_error(ErrorCode::unavailable, "out of memory");
    if (context->err != 0) return connection->unavailable(context->errstr);
    const auto connected = [&]() -> Result<void> {
        if (!connection->wait_for(POLLOUT, deadline)) {
            return make_error(ErrorCode::deadline, options.address() +
                                                       ": the deadline passed while connecting; "
                                                       "nothing was applied");
        }
        int failure = 0;
        socklen_t size = sizeof(failure);
        getsockopt(context->fd, SOL_SOCKET, SO_ERROR, &failure, &size);
        if (failure != 0) return connection->unavailable(std::strerror(failure));
        if (options.unix_path.empty()) {
            const int on = 1;  // A small command must not wait for the one before it.
            setsockopt(context->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
            redisEnableKeepAlive(context);
        }
        if (tls != nullptr) HOTCOUNT_TRY(connection->secure(tls, deadline));
        HOTCOUNT_TRY(connection->handshake(deadline));
        return connection->load(scripts, deadline);
    }();
    if (!connected) return connected.error();
    HOTCOUNT_TRY(connection->nothing_left());
    return connection;
}

Result<void> Connection::secure(redisSSLContext* tls, Deadline) {
    // On a socket that does not block this only starts; the first command goes on with it, and
    // fails if the certificate does not hold.
    if (redisInitiateSSLWithContext(context_, tls) != REDIS_OK) {
        return make_error(ErrorCode::unavailable,
                          options_.address() + ": TLS: " + context_->errstr);
    }
    tls_ = true;
    return {};
}

Result<void> Connection::handshake(Deadline deadline) {
    const bool names_user = !options_.user.empty() && !options_.password.empty();
    if (!options_.password.empty() && !names_user) {
        // By itself, because inside HELLO it would name the user "default", who takes any password
        // where none is set: a mistake that nobody would hear of.
        HOTCOUNT_TRY(authenticate({"AUTH", options_.password}, deadline));
    }
    std::vector<std::string_view> hello{"HELLO", "3"};
    if (names_user) hello.insert(hello.end(), {"AUTH", options_.user, options_.password});
    if (!options_.client_name.empty()) {
        hello.insert(hello.end(), {"SETNAME", options_.client_name});
    }
    HOTCOUNT_TRY_ASSIGN(const Reply greeted, execute(hello, deadline));
    if (const std::string* refused = error_text(greeted)) {
        const auto says = [&](const char* text) {
            return refused->find(text) != std::string::npos;
        };
        if (!says("unknown command") && !says("NOPROTO") && !says("NOPERM")) {
            return not_let_in(*refused, "HELLO");
        }
        // Older than 6.0, or an ACL without HELLO: RESP2.
        if (names_user) {
            HOTCOUNT_TRY(authenticate({"AUTH", options_.user, options_.password}, deadline));
        }
    }
    if (options_.database == 0) return {};
    const std::string database = std::to_string(options_.database);
    const std::string_view select[] = {"SELECT", database};
    HOTCOUNT_TRY_ASSIGN(const Reply selected, execute(select, deadline));
    if (const std::string* error = error_text(selected)) {
        return error_from_reply(*error, options_.address() + ": SELECT");
    }
    return {};
}

Result<void> Connection::authenticate(std::initializer_list<std::string_view> command,
                                      Deadline deadline) {
    HOTCOUNT_TRY_ASSIGN(const Reply reply,
                        execute(std::span{command.begin(), command.size()}, deadline));
    if (const std::string* error = error_text(reply)) return not_let_in(*error, "AUTH");
    return {};
}

// Whatever else a server says to credentials, it does not let us in.
Error Connection::not_let_in(const std::string& reply, const char* command) const {
    Error error = error_from_reply(reply, options_.address() + ": " + command);
    if (error.code == ErrorCode::reply) error.code = ErrorCode::auth;
    return error;
}

// With the connection, so that no call has to come twice. A server that does not take a script now
// is asked again with the script's text by the call that needs it.
Result<void> Connection::load(std::span<const Script* const> scripts, Deadline deadline) {
    if (scripts.empty()) return {};
    std::string bytes;
    for (const Script* script : scripts) {
        const std::string_view command[] = {"SCRIPT", "LOAD", script->text()};
        encode_command(bytes, command);
    }
    HOTCOUNT_TRY(send_all(bytes, "SCRIPT LOAD", deadline));
    for (std::size_t i = 0; i < scripts.size(); ++i) {
        HOTCOUNT_TRY(receive_one("SCRIPT LOAD", deadline));
    }
    return {};
}

Error Connection::too_late(std::string_view name) const {
    return make_error(ErrorCode::deadline, options_.address() + ": the deadline passed during " +
                                               std::string{name} + "; nothing was applied");
}

Result<Reply> Connection::execute(std::span<const std::string_view> command, Deadline deadline) {
    std::string bytes;
    encode_command(bytes, command);
    HOTCOUNT_TRY(send_all(bytes, command.front(), deadline));
    return receive_one(command.front(), deadline);
}

Result<void> Connection::send_all(std::string_view bytes, std::string_view name,
                                  Deadline deadline) {
    while (!bytes.empty()) {
        HOTCOUNT_TRY_ASSIGN(const std::size_t taken, write_some(bytes));
        bytes.remove_prefix(taken);
        if (taken > 0) continue;
        // A TLS handshake under way has to read before it can write.
        const bool ready = wait_for(tls_ ? POLLIN | POLLOUT : POLLOUT, deadline);
        if (!ready || deadline.passed()) return too_late(name);
    }
    return {};
}

Result<Reply> Connection::receive_one(std::string_view name, Deadline deadline) {
    Pace pace{deadline};
    while (true) {
        HOTCOUNT_TRY_ASSIGN(auto reply, next_reply());
        if (reply) return std::move(*reply);
        HOTCOUNT_TRY_ASSIGN(const bool more, read_some());
        if (!more && !wait_for(POLLIN, deadline)) return too_late(name);
        // Also while bytes keep coming that are no reply: pushes, or a line without an end.
        if (pace.due() && (check_interrupt() || deadline.passed())) return too_late(name);
    }
}

bool Connection::wait_for(short events, Deadline deadline) const {
    while (true) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            Deadline::at(next_check(deadline)).remaining());
        const int wait_ms = static_cast<int>(std::min<std::int64_t>(left.count(), INT_MAX));
        pollfd waiting{context_->fd, events, 0};
        const int ready = poll(&waiting, 1, wait_ms);
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return false;
        check_interrupt();
        if (deadline.passed()) return false;
    }
}

// What came beside the handshake's replies would be taken for those of calls.
Result<void> Connection::nothing_left() {
    HOTCOUNT_TRY_ASSIGN(auto reply, next_reply());
    if (!reply && readable()) {
        HOTCOUNT_TRY(read_some());
        HOTCOUNT_TRY_ASSIGN(reply, next_reply());
    }
    if (reply || !replies_.idle()) return unavailable("more replies than commands");
    return {};
}

bool Connection::readable() const { return readable_now(context_->fd); }

int Connection::descriptor() const { return context_->fd; }

void Connection::shut_down() { shutdown(context_->fd, SHUT_RDWR); }

Result<std::size_t> Connection::write_some(std::string_view bytes) {
    if (!tls_) {
        while (true) {
            const ssize_t sent =
                send(context_->fd, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
            if (sent >= 0) return static_cast<std::size_t>(sent);
            if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
            if (errno != EINTR) return unavailable(std::strerror(errno));
        }
    }
    const std::lock_guard lock(tls_mutex_);
    // hiredis writes from a buffer of its own; OpenSSL wants a write that it postponed to be
    // repeated with the same bytes, so nothing is added while some are left.
    std::size_t taken = 0;
    if (tls_flushed_) {
        taken = std::min(bytes.size(), kSliceBytes);
        if (redisAppendFormattedCommand(context_, bytes.data(), taken) != REDIS_OK) {
            return unavailable(context_->errstr);
        }
    }
    int done = 0;
    if (redisBufferWrite(context_, &done) != REDIS_OK) return unavailable(context_->errstr);
    tls_flushed_ = done != 0;
    return taken;
}

Result<bool> Connection::read_some() {
    const std::span<char> room = replies_.room();
    ssize_t received = 0;
    if (tls_) {
        const std::lock_guard lock(tls_mutex_);
        int done = 1;
        if (!tls_flushed_ && redisBufferWrite(context_, &done) != REDIS_OK) {
            return unavailable(context_->errstr);
        }
        tls_flushed_ = done != 0;
        received = context_->funcs->read(context_, room.data(), room.size());
        if (received < 0) return unavailable(context_->errstr);
        drained_ = received == 0;
        if (received == 0) return false;
    } else {
        received = recv(context_->fd, room.data(), room.size(), MSG_DONTWAIT);
        drained_ = received < static_cast<ssize_t>(room.size());
        if (received == 0) return unavailable("the server closed the connection");
        if (received < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return false;
            return unavailable(std::strerror(errno));
        }
    }
    const auto bytes = static_cast<std::size_t>(received);
    bytes_received_.fetch_add(bytes, std::memory_order_relaxed);
    replies_.add(bytes);
    return true;
}

Result<std::optional<Reply>> Connection::next_reply() {
    auto reply = replies_.next();
    if (!reply) return unavailable(reply.error().message);
    return reply;
}

}  // namespace hotcount::redis
