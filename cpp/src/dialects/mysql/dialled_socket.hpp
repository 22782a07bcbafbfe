// Connects Unix sockets in place of libmariadb, and finds addresses without a route.
//
// If connect() fails at once, libmariadb 3.3.20 closes the socket in my_connect_async(), and in
// pvio_socket_connect() again: by then the number may be another thread's file or connection. A
// Unix socket fails at once if no server listens; TCP fails at once if the system has no route to
// the address. So a Unix socket is connected here and given to the library (DialledSocket), and the
// routes to a host's addresses are counted before the library tries them (count_routes()).
#pragma once

#include <fcntl.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>

namespace hotcount::sql {

/// A non-blocking socket of ours, closed with this object.
class DialledSocket {
  public:
    DialledSocket(int family, int type)
        : socket_(::socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
          error_(socket_ < 0 ? errno : 0) {}
    DialledSocket(const DialledSocket&) = delete;
    DialledSocket& operator=(const DialledSocket&) = delete;
    ~DialledSocket() {
        if (socket_ >= 0) ::close(socket_);
    }

    int number() const { return socket_; }
    /// The errno of the last failure, or 0.
    int error() const { return error_; }

    void connect(const sockaddr* address, socklen_t size) {
        if (error_ == 0 && ::connect(socket_, address, size) != 0) error_ = errno;
    }
    /// A Unix socket is connected, or refused, at once. "@name" is an abstract one, as in libmariadb.
    void connect(const std::string& path) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        if (path.size() >= sizeof address.sun_path) {
            error_ = ENAMETOOLONG;
            return;
        }
        std::copy(path.begin(), path.end(), address.sun_path);
        socklen_t size = sizeof address;
        if (path.starts_with('@')) {
            address.sun_path[0] = '\0';
            size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
        }
        connect(reinterpret_cast<const sockaddr*>(&address), size);
    }
    /// Makes descriptor `number` refer to this connection, and closes the socket that it referred to.
    void give_to(int number) { (void)::dup3(socket_, number, O_CLOEXEC); }

  private:
    int socket_;
    int error_;
};

/// A Unix socket whose queue is full. libmariadb takes connect()'s EAGAIN for "under way" and
/// waits, on a descriptor that a connected socket can replace.
class FullAddress {
  public:
    FullAddress() {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        socklen_t size = sizeof address;
        auto* const any = reinterpret_cast<sockaddr*>(&address);
        // Without a name Linux chooses an abstract one that is free.
        if (::bind(listener_.number(), any, sizeof address.sun_family) != 0 ||
            ::listen(listener_.number(), 0) != 0 ||
            ::getsockname(listener_.number(), any, &size) != 0) {
            return;
        }
        constexpr std::size_t kName = offsetof(sockaddr_un, sun_path) + 1;
        if (size <= kName) return;
        const std::string name = "@" + std::string{address.sun_path + 1, size - kName};
        filler_.connect(name);
        DialledSocket next{AF_UNIX, SOCK_STREAM};
        next.connect(name);
        if (next.error() == EAGAIN) name_ = name;
    }

    /// The address in libmariadb's form: "@...". Empty if the system has no abstract sockets.
    const std::string& name() const { return name_; }

  private:
    DialledSocket listener_{AF_UNIX, SOCK_STREAM};
    DialledSocket filler_{AF_UNIX, SOCK_STREAM};
    std::string name_;
};

/// The numbers of a host's addresses with and without a route.
struct Routes {
    std::size_t known{0};
    std::size_t missing{0};
    int error{0};  ///< Why one is missing.
};

/// connect() of a datagram socket sends nothing: it only looks up the route. The resolver sorts
/// addresses without a route behind the others. Both numbers are 0 if the name does not resolve.
inline Routes count_routes(const std::string& host, unsigned port) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) return {};
    Routes routes;
    for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
        DialledSocket probe{each->ai_family, SOCK_DGRAM};
        probe.connect(each->ai_addr, each->ai_addrlen);
        if (probe.error() == 0) {
            ++routes.known;
        } else {
            ++routes.missing;
            routes.error = probe.error();
        }
    }
    ::freeaddrinfo(found);
    return routes;
}

}  // namespace hotcount::sql
