// From a server's name to a connected socket. Both block: for a thread of its own (dialer.hpp).
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

/// All addresses of the server's name, asked anew each time; at least one. Takes as long as the
/// system's resolver does, whose own limits hold (resolv.conf).
Result<std::vector<Address>> resolve(const Options& options);

/// A connected socket that does not block and is not inherited by programs that are executed.
/// A deadline error where nobody answered in time.
Result<int> connect_socket(const Address& address, Deadline deadline);

}  // namespace hotcount::redis
