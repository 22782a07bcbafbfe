#include "link.hpp"

#include <fcntl.h>
#include <fmt/core.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

namespace hotcount::loadtest {
namespace {

constexpr std::size_t kHeader = 5;
constexpr int kBacklog = 16;

Error refuse(std::string_view text) {
    return make_error(ErrorCode::config,
                      fmt::format("'{}' is no address; it takes host:port, such as 10.0.0.7:7420 "
                                  "or [::1]:7420",
                                  text));
}

Error failed(std::string_view what, int error) {
    return make_error(ErrorCode::unavailable, fmt::format("{}: {}", what, std::strerror(error)));
}

int milliseconds_left(const Deadline& deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
    return static_cast<int>(left < 0 ? 0 : left);
}

/// Whether the socket is ready before the deadline.
bool wait_for(int socket, short events, const Deadline& deadline) {
    for (;;) {
        pollfd watched{socket, events, 0};
        const int ready = poll(&watched, 1, milliseconds_left(deadline));
        if (ready >= 0 || errno != EINTR) return ready > 0;
    }
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Result<Addresses> look_up(const Address& address, int flags) {
    addrinfo wanted{};
    wanted.ai_family = AF_UNSPEC;
    wanted.ai_socktype = SOCK_STREAM;
    wanted.ai_flags = flags | AI_NUMERICSERV;
    addrinfo* found = nullptr;
    const std::string port = std::to_string(address.port);
    const int error = getaddrinfo(address.host.c_str(), port.c_str(), &wanted, &found);
    if (error == 0) return Addresses(found, &freeaddrinfo);
    return make_error(ErrorCode::unavailable,
                      fmt::format("{} is not found: {}", address.host, gai_strerror(error)));
}

bool is_loopback(const sockaddr& address) {
    if (address.sa_family == AF_INET) {
        const auto& v4 = reinterpret_cast<const sockaddr_in&>(address);
        return (ntohl(v4.sin_addr.s_addr) >> 24) == 127;
    }
    if (address.sa_family != AF_INET6) return false;
    return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr) != 0;
}

Result<int> connect_to(const addrinfo& to, const Deadline& deadline) {
    const int made = socket(to.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (made < 0) return failed("no socket", errno);
    int error = 0;
    if (::connect(made, to.ai_addr, to.ai_addrlen) != 0) {
        error = errno;
        if (error == EINPROGRESS) {
            socklen_t size = sizeof(error);
            if (!wait_for(made, POLLOUT, deadline)) {
                error = ETIMEDOUT;
            } else if (getsockopt(made, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
                error = errno;
            }
        }
    }
    if (error == 0) return made;
    close(made);
    return failed("it cannot be reached", error);
}

}  // namespace

Result<Address> parse_address(std::string_view text) {
    const std::size_t colon = text.rfind(':');
    if (colon == std::string_view::npos || colon == 0) return refuse(text);
    std::string_view host = text.substr(0, colon);
    const std::string_view digits = text.substr(colon + 1);
    Address address{};
    const char* const end = digits.data() + digits.size();
    const auto [rest, error] = std::from_chars(digits.data(), end, address.port);
    if (error != std::errc{} || rest != end) return refuse(text);
    if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
    } else if (host.find_first_of(":[]/@") != std::string_view::npos) {
        return refuse(text);
    }
    address.host = host;
    return address;
}

std::string format_address(const Address& address) {
    const bool v6 = address.host.find(':') != std::string::npos;
    return fmt::format(fmt::runtime(v6 ? "[{}]:{}" : "{}:{}"), address.host, address.port);
}

bool is_loopback(const Address& address) {
    const auto found = look_up(address, AI_PASSIVE);
    if (!found) return false;
    for (const addrinfo* one = found->get(); one != nullptr; one = one->ai_next) {
        if (!is_loopback(*one->ai_addr)) return false;
    }
    return true;
}

Link::Link(int socket) : socket_(socket) {
    fcntl(socket_, F_SETFL, fcntl(socket_, F_GETFL) | O_NONBLOCK);
    const int yes = 1;
    setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

Link::~Link() { close(socket_); }

Result<std::unique_ptr<Link>> Link::connect(const Address& address, Duration timeout) {
    const Deadline deadline = Deadline::after(timeout);
    HOTCOUNT_TRY_ASSIGN(const Addresses found, look_up(address, 0));
    std::optional<Error> last;
    for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
        const auto made = connect_to(*one, deadline);
        if (made) return std::make_unique<Link>(*made);
        last = made.error();
    }
    return last.value_or(make_error(ErrorCode::unavailable, "it has no address"));
}

Result<void> Link::send(FrameKind kind, std::string_view body, Duration timeout) {
    const Deadline deadline = Deadline::after(timeout);
    const auto length = static_cast<std::uint32_t>(body.size());
    std::string frame;
    frame.reserve(kHeader + body.size());
    for (const int shift : {24, 16, 8, 0}) frame += static_cast<char>(length >> shift);
    frame += static_cast<char>(kind);
    frame += body;
    const std::lock_guard lock(sending_);
    for (std::string_view left = frame; !left.empty();) {
        const ssize_t sent = ::send(socket_, left.data(), left.size(), MSG_NOSIGNAL);
        if (sent > 0) {
            left.remove_prefix(static_cast<std::size_t>(sent));
        } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
            if (!wait_for(socket_, POLLOUT, deadline)) {
                return make_error(ErrorCode::deadline, "it takes nothing any more");
            }
        } else if (errno != EINTR) {
            return failed("nothing can be sent to it", errno);
        }
    }
    return {};
}

Result<std::optional<Frame>> Link::receive(Duration timeout, std::size_t most) {
    const Deadline deadline = Deadline::after(timeout);
    std::array<char, 65536> room;
    for (;;) {
        if (received_.size() >= kHeader) {
            std::size_t length = 0;
            for (std::size_t at = 0; at < 4; ++at) {
                length = length << 8 | static_cast<unsigned char>(received_[at]);
            }
            const auto kind = static_cast<FrameKind>(received_[4]);
            if (length > most || kind < FrameKind::hello || kind > FrameKind::failed) {
                return make_error(ErrorCode::reply, "it sends what no frame begins with");
            }
            if (received_.size() >= kHeader + length) {
                Frame frame{kind, received_.substr(kHeader, length)};
                received_.erase(0, kHeader + length);
                return std::optional{std::move(frame)};
            }
        }
        if (!wait_for(socket_, POLLIN, deadline)) return std::optional<Frame>{};
        const ssize_t got = recv(socket_, room.data(), room.size(), 0);
        if (got > 0) {
            received_.append(room.data(), static_cast<std::size_t>(got));
        } else if (got == 0) {
            return make_error(ErrorCode::closed, "it hung up");
        } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
            return failed("it hung up", errno);
        }
    }
}

Result<std::unique_ptr<Listener>> Listener::open(const Address& address) {
    HOTCOUNT_TRY_ASSIGN(const Addresses found, look_up(address, AI_PASSIVE));
    const int made = socket(found->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (made < 0) return failed("no socket", errno);
    const int yes = 1;
    setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
    if (bind(made, found->ai_addr, found->ai_addrlen) != 0 || listen(made, kBacklog) != 0) {
        const int error = errno;
        ::close(made);
        return make_error(
            ErrorCode::config,
            fmt::format("cannot listen at {}: {}", format_address(address), std::strerror(error)));
    }
    Address taken = address;
    sockaddr_storage own{};
    socklen_t size = sizeof(own);
    if (getsockname(made, reinterpret_cast<sockaddr*>(&own), &size) == 0) {
        taken.port =
            ntohs(own.ss_family == AF_INET ? reinterpret_cast<const sockaddr_in&>(own).sin_port
                                           : reinterpret_cast<const sockaddr_in6&>(own).sin6_port);
    }
    return std::unique_ptr<Listener>(new Listener(made, std::move(taken)));
}

Listener::~Listener() { close(); }

void Listener::close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
}

std::optional<std::pair<int, std::string>> Listener::accept(Duration timeout) {
    if (!wait_for(socket_, POLLIN, Deadline::after(timeout))) return std::nullopt;
    sockaddr_storage from{};
    socklen_t size = sizeof(from);
    const int taken = accept4(socket_, reinterpret_cast<sockaddr*>(&from), &size, SOCK_CLOEXEC);
    if (taken < 0) return std::nullopt;
    std::array<char, NI_MAXHOST> host{};
    (void)getnameinfo(reinterpret_cast<const sockaddr*>(&from), size, host.data(), host.size(),
                      nullptr, 0, NI_NUMERICHOST);
    return std::pair{taken, std::string{host.data()}};
}

}  // namespace hotcount::loadtest
