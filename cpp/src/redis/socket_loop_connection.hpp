// How a client makes the connections of event loops, and their counts for Client::stats().
#pragma once

#include <atomic>
#include <functional>
#include <hotcount/detail/redis/channel.hpp>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "dialer.hpp"
#include "shared_connection.hpp"

namespace hotcount::redis {

/// What other threads may know of the connections of a client's loops. Thread-safe.
class LoopConnections {
  public:
    std::atomic<bool> closed{false};

    /// Each connection reports its counts at its ticks.
    void report(const void* connection, const SharedConnection::Counts& counts);
    /// The connection ends; its counts stay in the sum.
    void forget(const void* connection);
    void add_to(SharedConnection::Counts& counts) const;

  private:
    mutable std::mutex mutex_;
    std::map<const void*, SharedConnection::Counts> live_;
    SharedConnection::Counts ended_;
};

/// The connection of a loop to one node of a cluster. For the loop's thread, as LoopConnection.
class LoopLane : public LoopConnection {
  public:
    /// False and the error if the call was not taken. It completes no call.
    virtual std::optional<Error> take(const OperationPtr& operation) = 0;
    virtual void evict(const Error& why) = 0;
    virtual void confirm(bool owns, SteadyTime asked_at) = 0;
    virtual std::optional<SteadyTime> doubted_since() const = 0;
    virtual void outstanding(SlotSet& slots) const = 0;
    virtual bool is_connected() const = 0;
    /// Whether it asked for flush().
    virtual bool wants_flush() const = 0;
    virtual std::size_t in_flight() const = 0;
    virtual std::size_t queued() const = 0;
    /// Whether the descriptor is one of its own.
    virtual bool watches(int fd) const = 0;
};

std::unique_ptr<LoopLane> make_loop_lane(const Options& options, std::shared_ptr<Dialer> dialer,
                                         LoopHost& host, std::shared_ptr<LoopConnections> loops,
                                         LaneOf lane);

std::unique_ptr<LoopConnection> make_loop_connection(const Options& options,
                                                     std::shared_ptr<Dialer> dialer, LoopHost& host,
                                                     std::shared_ptr<LoopConnections> loops);

}  // namespace hotcount::redis
