// Whether a socket can be read now, without waiting.
#pragma once

#include <poll.h>

#include <cerrno>

namespace hotcount {

/// True for bytes, an end or an error. With a pending signal, even a poll that does not sleep ends
/// with EINTR, which says nothing about the socket.
inline bool readable_now(int descriptor) {
    pollfd looked{descriptor, POLLIN, 0};
    const int ready = ::poll(&looked, 1, 0);
    return ready > 0 || (ready < 0 && errno != EINTR);
}

}  // namespace hotcount
