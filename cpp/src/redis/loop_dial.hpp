// An event loop's request to the dialer for a connection, with a descriptor (eventfd) that becomes
// readable when the dialer has answered. Any thread may call arrived(); all else is for the loop's
// thread. The descriptor is closed with the last reference.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "connection.hpp"

namespace hotcount::redis {

// A pending or answered request for a connection.
class Dial {
  public:
    /// Fails if the process has no descriptor left.
    static Result<std::shared_ptr<Dial>> make() {
        const int ready = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
        if (ready < 0) return make_error(ErrorCode::unavailable, std::strerror(errno));
        return std::make_shared<Dial>(ready);
    }
    explicit Dial(int ready) : ready_(ready) {}
    ~Dial() { ::close(ready_); }
    Dial(const Dial&) = delete;
    Dial& operator=(const Dial&) = delete;

    int descriptor() const { return ready_; }

    void arrived(Result<std::unique_ptr<Connection>> opened) {
        const std::lock_guard lock(mutex_);
        opened_.emplace(std::move(opened));
        const std::uint64_t one = 1;
        (void)!::write(ready_, &one, sizeof(one));
    }

    std::optional<Result<std::unique_ptr<Connection>>> take() {
        const std::lock_guard lock(mutex_);
        std::uint64_t count = 0;
        (void)!::read(ready_, &count, sizeof(count));
        auto taken = std::move(opened_);
        opened_.reset();
        return taken;
    }

  private:
    const int ready_;
    std::mutex mutex_;
    std::optional<Result<std::unique_ptr<Connection>>> opened_;
};

}  // namespace hotcount::redis
