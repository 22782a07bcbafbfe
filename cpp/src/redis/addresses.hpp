// From a server's name to a connected socket. Both functions block: threads of the dialer call them.
#pragma once

#include <sys/socket.h>

#include <hotcount/clock.hpp>
#include <hotcount/detail/redis/options.hpp>
#include <hotcount/result.hpp>
#include <string>
#include <vector>

namespace hotcount::redis {

struct Address {
    sockaddr_storage place{};
    socklen_t size{0};
    std::string shown;  ///< For messages.

    bool operator==(const Address& other) const { return shown == other.shown; }
};

/// All addresses of the server's name, at least one, resolved anew each time. It takes as long as the
/// system's resolver, which has its own limits (resolv.conf).
Result<std::vector<Address>> resolve(const Options& options);

/// A connected socket that does not block and that executed programs do not inherit. A deadline error
/// if nobody answered in time.
Result<int> connect_socket(const Address& address, Deadline deadline);

}  // namespace hotcount::redis
