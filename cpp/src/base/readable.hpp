// Whether a socket has something to say, without waiting for it.
#pragma once

#include <poll.h>

#include <cerrno>

namespace hotcount {

/// Bytes to read, an end, or an error. A signal that is yet to be handled ends a poll with EINTR even
/// where it does not sleep: that says nothing of the socket.
inline bool readable_now(int descriptor) {
    pollfd looked{descriptor, POLLIN, 0};
    const int ready = ::poll(&looked, 1, 0);
    return ready > 0 || (ready < 0 && errno != EINTR);
}

}  // namespace hotcount
