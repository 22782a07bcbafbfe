// Connections for one caller at a time: for commands whose number of replies is not known to be
// one.
//
//   caller --take()--> an idle or a new connection --> back to the idle list, or closed if in doubt
//
// At most Options::exclusive_connections at a time; when all are taken a caller waits until its
// deadline. Thread-safe. State is per process: the client keeps it in a ForkLocal.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <hotcount/clock.hpp>
#include <hotcount/detail/redis/options.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "connection.hpp"
#include "dialer.hpp"

namespace hotcount::redis {

class DedicatedConnections {
  public:
    DedicatedConnections(const Options& options, std::shared_ptr<Dialer> dialer)
        : options_(options), dialer_(std::move(dialer)) {}

    /// One attempt at a command, checked by an ECHO behind it. If it did not answer exactly once, its
    /// outcome is unknown and the connection is closed.
    Result<Reply> execute(std::span<const std::string_view> command, Deadline deadline);
    /// Closes idle connections at once. Calls under way end as closed, or unknown once they are sent.
    void close();
    std::uint64_t connects() const;

  private:
    // Holds one of the exclusive_connections for one call.
    class Taken;

    Error closed_error() const;
    Error not_applied(const Error& error) const;
    // Connections requested from the dialer. They belong to no caller: if a caller leaves at its
    // deadline, the next caller takes the connection.
    struct Arrivals {
        std::mutex mutex;
        std::condition_variable changed;
        std::deque<std::unique_ptr<Connection>> ready;
        std::size_t asked{0};
        std::size_t wanted{0};  // Callers that wait.
        std::uint64_t failures{0};
        bool closed{false};
        std::optional<Error> why{};  // Of the last failure, until a connection arrives.
    };

    Result<std::shared_ptr<Connection>> open(Deadline deadline);
    Result<void> ask_for_connection();
    bool leaves_replica(const Connection& connection, const std::optional<Error>& refused);
    Result<std::shared_ptr<Connection>> take_arrival(std::unique_lock<std::mutex>& lock,
                                                     Deadline deadline);

    const Options options_;
    mutable std::mutex mutex_;
    std::condition_variable room_;
    std::vector<std::shared_ptr<Connection>> idle_;
    std::vector<Connection*> busy_;  // In use by calls.
    std::size_t taken_{0};
    std::uint64_t connects_{0};
    const std::shared_ptr<Dialer> dialer_;
    const std::shared_ptr<Arrivals> arrivals_{std::make_shared<Arrivals>()};
    Moves moves_;
    bool closed_{false};
};

}  // namespace hotcount::redis
