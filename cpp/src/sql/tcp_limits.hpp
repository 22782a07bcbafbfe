// When a TCP connection counts as dead whose other end says nothing any more.
#pragma once

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <hotcount/clock.hpp>

namespace hotcount::sql {

/// Keepalives, in seconds: a silence of 15, then three unanswered probes 5 apart. Such a probe also
/// keeps most firewalls from forgetting a connection on which a statement waits.
struct TcpLimits {
    int idle;
    int interval;
    int count;
};
inline constexpr TcpLimits kTcpLimits{15, 5, 3};

/// Sets them, and how long what was sent may stay unacknowledged. Of no effect on a Unix socket.
inline void set_tcp_limits(int socket, Duration user_timeout) {
    const auto set = [socket](int level, int name, int value) {
        (void)::setsockopt(socket, level, name, &value, sizeof value);
    };
    set(SOL_SOCKET, SO_KEEPALIVE, 1);
    set(IPPROTO_TCP, TCP_KEEPIDLE, kTcpLimits.idle);
    set(IPPROTO_TCP, TCP_KEEPINTVL, kTcpLimits.interval);
    set(IPPROTO_TCP, TCP_KEEPCNT, kTcpLimits.count);
    set(IPPROTO_TCP, TCP_USER_TIMEOUT,
        static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(user_timeout).count()));
}

}  // namespace hotcount::sql
