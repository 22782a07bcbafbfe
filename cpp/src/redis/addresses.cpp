#include "addresses.hpp"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>

namespace hotcount::redis {
namespace {

struct FreeAddresses {
    void operator()(addrinfo* list) const { freeaddrinfo(list); }
};

// connect() to a Unix socket whose backlog is full fails at once instead of waiting.
constexpr int kBacklogPauseMs = 5;

// A peer that is gone without closing is noticed after half a minute of silence.
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
    std::vector<Address> addresses;
    if (!options.unix_path.empty()) {
        addresses.push_back(unix_address(options.unix_path));
        return addresses;
    }
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_NUMERICSERV;
    addrinfo* raw = nullptr;
    const std::string port = std::to_string(options.port);
    const int failure = getaddrinfo(options.host.c_str(), port.c_str(), &hints, &raw);
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

}  // namespace hotcount::redis
