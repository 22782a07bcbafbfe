#include "connection.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <hotcount/detail/base/interrupt.hpp>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/readable.hpp"
#include "base/secrets.hpp"
#include "commands.hpp"
#include "server_role.hpp"

namespace hotcount::redis {
namespace {

struct FreeAddresses {
    void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

// Pause between attempts: connect() fails at once while the backlog of a Unix socket is full.
constexpr int kBacklogPauseMs = 5;

// How often wait_for() asks whether withheld bytes count now.
constexpr Duration kConfirmTick = std::chrono::milliseconds{5};

// TCP keepalive detects a peer that vanished without closing after 15 + 3 * 5 = 30 s of silence.
constexpr int kSilentSeconds = 15;
constexpr int kBetweenProbesSeconds = 5;
constexpr int kProbes = 3;

Error failed(const Address& address, int error_number) {
    return make_error(ErrorCode::unavailable, address.shown + ": " + std::strerror(error_number));
}

int milliseconds_left(Deadline deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining());
    return static_cast<int>(std::min<std::int64_t>(left.count(), INT_MAX));
}

void set_tcp_options(int socket) {
    const auto set = [&](int level, int name, int value) {
        setsockopt(socket, level, name, &value, sizeof(value));
    };
    set(IPPROTO_TCP, TCP_NODELAY, 1);  // A small command must not wait for the one before it.
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
#ifdef TCP_KEEPIDLE
    set(IPPROTO_TCP, TCP_KEEPIDLE, kSilentSeconds);
    set(IPPROTO_TCP, TCP_KEEPINTVL, kBetweenProbesSeconds);
    set(IPPROTO_TCP, TCP_KEEPCNT, kProbes);
#endif
}

Address unix_address(const std::string& path) {
    Address address;
    sockaddr_un place{};
    place.sun_family = AF_UNIX;
    path.copy(place.sun_path, sizeof(place.sun_path) - 1);
    std::memcpy(&address.place, &place, sizeof(place));
    address.size = sizeof(place);
    address.shown = path;
    return address;
}

// 0 if connected, otherwise the error number.
int finish_connecting(int socket, const Address& address, Deadline deadline) {
    while (true) {
        if (connect(socket, reinterpret_cast<const sockaddr*>(&address.place), address.size) == 0 ||
            errno == EISCONN) {
            return 0;
        }
        if (errno == EINTR) continue;
        if (errno == EAGAIN && address.place.ss_family == AF_UNIX) {
            if (deadline.passed()) return ETIMEDOUT;
            poll(nullptr, 0, std::min(kBacklogPauseMs, milliseconds_left(deadline)));
            continue;
        }
        if (errno != EINPROGRESS && errno != EALREADY) return errno;
        pollfd waiting{socket, POLLOUT, 0};
        const int ready = poll(&waiting, 1, milliseconds_left(deadline));
        if (ready == 0) return ETIMEDOUT;
        if (ready < 0 && errno == EINTR) continue;
        int failure = 0;
        socklen_t size = sizeof(failure);
        getsockopt(socket, SOL_SOCKET, SO_ERROR, &failure, &size);
        return failure;
    }
}

}  // namespace

Result<std::vector<Address>> resolve(const Options& options) {
    if (!options.unix_path.empty()) return std::vector<Address>{unix_address(options.unix_path)};
    return resolve(Endpoint{options.host, options.port});
}

Result<std::vector<Address>> resolve(const Endpoint& endpoint) {
    std::vector<Address> addresses;
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* raw = nullptr;
    const std::string port = std::to_string(endpoint.port);
    const int failure = getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &raw);
    const std::unique_ptr<addrinfo, FreeAddresses> list{failure == 0 ? raw : nullptr};
    if (failure != 0) {
        const char* const why =
            failure == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(failure);
        return make_error(ErrorCode::unavailable, std::string{"the name does not resolve: "} + why);
    }
    for (const addrinfo* each = list.get(); each != nullptr; each = each->ai_next) {
        Address address;
        std::memcpy(&address.place, each->ai_addr, each->ai_addrlen);
        address.size = each->ai_addrlen;
        char host[NI_MAXHOST] = "?";
        (void)getnameinfo(each->ai_addr, each->ai_addrlen, host, sizeof(host), nullptr, 0,
                          NI_NUMERICHOST);
        address.shown = host;
        address.host = endpoint.host;
        if (std::find(addresses.begin(), addresses.end(), address) == addresses.end()) {
            addresses.push_back(std::move(address));
        }
    }
    if (addresses.empty()) {
        return make_error(ErrorCode::unavailable, "the name has no address");
    }
    return addresses;
}

Result<int> connect_socket(const Address& address, Deadline deadline) {
    const int made = socket(address.place.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (made < 0) return failed(address, errno);
    if (const int failure = finish_connecting(made, address, deadline); failure != 0) {
        close(made);
        if (failure == ETIMEDOUT && deadline.passed()) {
            return make_error(ErrorCode::deadline, address.shown + ": no answer to the connect");
        }
        return failed(address, failure);
    }
    if (address.place.ss_family != AF_UNIX) set_tcp_options(made);
    return made;
}

namespace {

const std::string* error_text(const Reply& reply) {
    const auto* error = std::get_if<ReplyError>(&reply.value);
    return error == nullptr ? nullptr : &error->message;
}

bool says(const std::string& reply, const char* text) {
    return reply.find(text) != std::string::npos;
}

// A server with maxclients connections sends this error on a new connection and closes it.
bool is_full(const std::string& reply) { return says(reply, "max number of clients"); }

// Whether the command HELLO was refused, not its arguments: by a server older than 6.0, an ACL that
// denies HELLO, a renamed command, or a proxy that speaks only RESP2.
bool knows_no_hello(const std::string& reply) {
    if (is_full(reply) || says(reply, "password")) return false;
    return reply.starts_with("NOPROTO") || reply.starts_with("NOPERM") || reply.starts_with("ERR");
}

}  // namespace

Connection::Connection(int socket, const Address& peer, const Options& options)
    : socket_(socket), peer_(peer), options_(options), replies_(options.max_reply_bytes) {}

Connection::~Connection() {
    if (lease_ != nullptr) lease_->detach();
    tls_.reset();
    close(socket_);
}

Error Connection::unavailable(std::string_view why) const {
    // Lease::end() shuts the socket down, which looks like a close by the server.
    const bool left = lease_ != nullptr && lease_->ended();
    const std::string text{left ? lease_->endpoint().str() + " was left: " + lease_->why()
                                : std::string{why}};
    return make_error(ErrorCode::unavailable, options_.address() + ": " + text);
}

Result<std::unique_ptr<Connection>> Connection::open(const Options& options, const TlsContext& tls,
                                                     std::span<const Script* const> scripts,
                                                     const Address& address, Deadline deadline,
                                                     const Login& login,
                                                     std::shared_ptr<Lease> lease) {
    const auto socket = connect_socket(address, deadline);
    if (!socket) {
        const bool shown = address.shown == options.host || !options.unix_path.empty();
        const std::string_view why = socket.error().message;
        return make_error(socket.error().code,
                          options.address() + ": " +
                              std::string{shown ? why.substr(address.shown.size() + 2) : why});
    }
    std::unique_ptr<Connection> connection{new Connection{*socket, address, options}};
    if (lease != nullptr) {
        lease->attach(*socket);
        connection->lease_ = std::move(lease);
    }
    if (tls != nullptr) HOTCOUNT_TRY(connection->secure(tls, deadline));
    HOTCOUNT_TRY(connection->greet(login, deadline));
    if (connection->lease_ != nullptr) HOTCOUNT_TRY(connection->check_primary(deadline));
    HOTCOUNT_TRY(connection->load(scripts, deadline));
    HOTCOUNT_TRY(connection->nothing_left());
    connection->bytes_of_greeting_ = connection->bytes_received_;
    return connection;
}

Result<void> Connection::secure(const TlsContext& tls, Deadline deadline) {
    const auto named = [&](const Error& error) { return unavailable(error.message); };
    auto session = TlsSession::make(tls, socket_, options_, peer_.host);
    if (!session) return named(session.error());
    while (true) {
        const auto step = (*session)->handshake();
        if (!step) return named(step.error());
        if (*step == TlsSession::Step::done) break;
        const auto events = *step == TlsSession::Step::wants_to_read ? POLLIN : POLLOUT;
        if (!wait_for(static_cast<short>(events), deadline)) return too_late("the TLS handshake");
    }
    tls_ = std::move(*session);
    return {};
}

Result<void> Connection::greet(const Login& login, Deadline deadline) {
    remember_secret(login.password);
    const bool names_user = !login.user.empty() && !login.password.empty();
    if (!login.password.empty() && !names_user) {
        // Not inside HELLO, which would name the user "default". If that user has no password, the
        // server accepts any, and the mistake would never be reported.
        HOTCOUNT_TRY(authenticate({"AUTH", login.password}, deadline));
    }
    bool greeted = false;
    if (options_.protocol >= 3) {
        HOTCOUNT_TRY_ASSIGN(greeted, say_hello(login, deadline));
    }
    knows_hello_ = greeted;
    if (!greeted && names_user) {  // RESP2.
        HOTCOUNT_TRY(authenticate({"AUTH", login.user, login.password}, deadline));
    }
    // With no other command to send, PING finds a server that refuses the connection.
    if (options_.protocol < 3 && login.password.empty()) {
        constexpr std::string_view kPing[] = {"PING"};
        HOTCOUNT_TRY_ASSIGN(const Reply reply, execute(kPing, deadline));
        const std::string* const refused = error_text(reply);
        if (refused != nullptr && !refused->starts_with("NOPERM")) {
            return not_let_in(*refused, "PING");
        }
    }
    if (options_.database == 0) return {};
    const std::string database = std::to_string(options_.database);
    const std::string_view select[] = {"SELECT", database};
    HOTCOUNT_TRY_ASSIGN(const Reply selected, execute(select, deadline));
    if (const std::string* error = error_text(selected)) return not_let_in(*error, "SELECT");
    return {};
}

// False if the server does not know HELLO.
Result<bool> Connection::say_hello(const Login& login, Deadline deadline) {
    std::vector<std::string_view> hello{"HELLO", "3"};
    if (!login.user.empty() && !login.password.empty()) {
        hello.insert(hello.end(), {"AUTH", login.user, login.password});
    }
    if (!options_.client_name.empty()) {
        hello.insert(hello.end(), {"SETNAME", options_.client_name});
    }
    HOTCOUNT_TRY_ASSIGN(const Reply greeted, execute(hello, deadline));
    const std::string* const refused = error_text(greeted);
    if (refused == nullptr) {
        role_ = hello_field(greeted, "role");
        return true;
    }
    if (knows_no_hello(*refused)) return false;
    return not_let_in(*refused, "HELLO");
}

Result<void> Connection::authenticate(std::initializer_list<std::string_view> command,
                                      Deadline deadline) {
    HOTCOUNT_TRY_ASSIGN(const Reply reply,
                        execute(std::span{command.begin(), command.size()}, deadline));
    if (const std::string* error = error_text(reply)) return not_let_in(*error, "AUTH");
    return {};
}

// The error code of a refused handshake, where error_from_reply() has a less precise one.
Error Connection::not_let_in(const std::string& reply, const char* command) const {
    Error error = error_from_reply(reply, options_.address() + ": " + command);
    if (is_full(reply)) error.code = ErrorCode::unavailable;
    if (reply.starts_with("DENIED")) error.code = ErrorCode::permission_denied;  // Protected mode.
    if (says(reply, "no password is set")) error.code = ErrorCode::auth;         // Before 6.0.
    return error;
}

// Sentinels name a server as primary before its promotion ends, and for a while after its demotion.
Result<void> Connection::check_primary(Deadline deadline) {
    if (role_.empty()) {  // RESP2.
        constexpr std::string_view kRole[] = {"ROLE"};
        HOTCOUNT_TRY_ASSIGN(const Reply reply, execute(kRole, deadline));
        if (const std::string* error = error_text(reply)) return not_let_in(*error, "ROLE");
        const auto* const parts = std::get_if<ReplyArray>(&reply.value);
        const auto* const role = parts == nullptr || parts->empty()
                                     ? nullptr
                                     : std::get_if<std::string>(&parts->front().value);
        if (role != nullptr) role_ = *role;
    }
    if (role_ == "master") return {};
    return make_error(ErrorCode::unavailable,
                      options_.address() + ": " + lease_->endpoint().str() +
                          ", which the Sentinels name, is not a primary now",
                      "MASTERDOWN");
}

// Loads the scripts before the first call, so that no EVALSHA is sent twice because of NOSCRIPT. An
// error reply to SCRIPT LOAD is ignored: a call of that script then sends the script's text.
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
    return make_error(ErrorCode::deadline, options_.address() + ": no answer during " +
                                               std::string{name} + " within connect_timeout");
}

Result<ReplyArray> Connection::ask(std::span<const std::vector<std::string_view>> commands,
                                   Deadline deadline) {
    std::string bytes;
    for (const auto& command : commands) encode_command(bytes, command);
    const std::string_view name = commands.front().front();
    HOTCOUNT_TRY(send_all(bytes, name, deadline));
    ReplyArray replies;
    while (replies.size() < commands.size()) {
        HOTCOUNT_TRY_ASSIGN(Reply reply, receive_one(name, deadline));
        replies.push_back(std::move(reply));
    }
    return replies;
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
        const auto taken = write_some(bytes);
        // A server that refuses the connection sends the reason and closes: read the reason.
        if (!taken) return read_some() ? Result<void>{} : taken.error();
        bytes.remove_prefix(*taken);
        if (*taken > 0) continue;
        const bool ready = wait_for(POLLOUT, deadline);
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
        // Also checked while bytes arrive that complete no reply: pushes, or an endless line.
        if (pace.due() && (check_interrupt() || deadline.passed())) return too_late(name);
    }
}

bool Connection::wait_for(short events, Deadline deadline) const {
    while ((events & POLLIN) != 0 && withholds()) {
        if (lease_->confirmed(withheld_since_)) return true;
        if (check_interrupt() || deadline.passed()) return false;
        std::this_thread::sleep_for(std::min(kConfirmTick, deadline.remaining()));
    }
    while (true) {
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            Deadline::at(next_check(deadline)).remaining());
        const int wait_ms = static_cast<int>(std::min<std::int64_t>(left.count(), INT_MAX));
        pollfd waiting{socket_, events, 0};
        const int ready = poll(&waiting, 1, wait_ms);
        if (ready > 0) return true;
        if (ready < 0 && errno != EINTR) return false;
        check_interrupt();
        if (deadline.passed()) return false;
    }
}

// Bytes after the replies of the handshake would count as replies to calls.
Result<void> Connection::nothing_left() {
    HOTCOUNT_TRY_ASSIGN(auto reply, next_reply());
    if (!reply && readable()) {
        HOTCOUNT_TRY(read_some());
        HOTCOUNT_TRY_ASSIGN(reply, next_reply());
    }
    if (reply || withholds() || !replies_.idle()) return unavailable("more replies than commands");
    return {};
}

bool Connection::readable() const { return withholds() || readable_now(socket_); }

int Connection::descriptor() const { return socket_; }

void Connection::shut_down() { shutdown(socket_, SHUT_RDWR); }

Result<void> Connection::check_lease() const {
    if (lease_ == nullptr || !lease_->ended()) return {};
    return unavailable({});
}

Result<std::size_t> Connection::write_some(std::string_view bytes) {
    HOTCOUNT_TRY(check_lease());
    if (tls_ != nullptr) {
        auto taken = tls_->write(bytes);
        if (!taken) return unavailable(taken.error().message);
        return taken;
    }
    while (true) {
        const ssize_t sent = send(socket_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        if (sent >= 0) return static_cast<std::size_t>(sent);
        if (errno == EAGAIN || errno == EWOULDBLOCK) return std::size_t{0};
        if (errno != EINTR) return unavailable(std::strerror(errno));
    }
}

Result<bool> Connection::read_some() {
    const std::span<char> room = withholds() ? std::span<char>{} : replies_.room();
    ssize_t received = 0;
    if (withholds()) {
        received = static_cast<ssize_t>(withheld_.load());
    } else if (tls_ != nullptr) {
        const auto read = tls_->read(room);
        if (!read) return unavailable(read.error().message);
        received = static_cast<ssize_t>(*read);
        drained_ = received == 0;
        if (received == 0) return false;
    } else {
        received = recv(socket_, room.data(), room.size(), MSG_DONTWAIT);
        drained_ = received < static_cast<ssize_t>(room.size());
        if (received == 0) return unavailable(kEndedByServer);
        if (received < 0) {
            if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) return false;
            return unavailable(std::strerror(errno));
        }
    }
    // Bytes from a primary that has been replaced acknowledge nothing.
    const auto bytes = static_cast<std::size_t>(received);
    const bool counts =
        lease_ == nullptr || lease_->confirmed(withholds() ? withheld_since_ : SteadyTime::max());
    if (!counts && !withholds()) withheld_since_ = std::chrono::steady_clock::now();
    withheld_ = counts ? 0 : bytes;
    HOTCOUNT_TRY(check_lease());
    if (withholds()) return false;
    bytes_received_.fetch_add(bytes, std::memory_order_relaxed);
    replies_.add(bytes);
    return true;
}

Result<std::optional<Reply>> Connection::next_reply() {
    auto reply = replies_.next();
    if (!reply) reply = unavailable(reply.error().message);
    return reply;
}

}  // namespace hotcount::redis
