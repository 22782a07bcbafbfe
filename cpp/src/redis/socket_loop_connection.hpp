// The functions that make the connections of event loops, and the sum of these connections' counts
// for Client::stats().
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

/// The counts of the connections of a client's event loops, for other threads. Thread-safe.
class LoopConnections {
  public:
    std::atomic<bool> closed{false};  ///< The client is closed.

    /// Replaces the counts of a connection, which calls this at each tick.
    void report(const void* connection, const SharedConnection::Counts& counts);
    /// The connection ends; its counts stay in the sum.
    void forget(const void* connection);
    void add_to(SharedConnection::Counts& counts) const;

  private:
    mutable std::mutex mutex_;
    std::map<const void*, SharedConnection::Counts> live_;
    SharedConnection::Counts ended_;
};

/// An event loop's connection to one node of a cluster. Only the loop's thread may use it.
class LoopLane : public LoopConnection {
  public:
    /// Queues the call, or returns the reason for which it cannot. Completes no call.
    virtual std::optional<Error> take(const OperationPtr& operation) = 0;
    virtual void evict(const Error& why) = 0;
    virtual void confirm(bool owns, SteadyTime asked_at) = 0;
    virtual std::optional<SteadyTime> doubted_since() const = 0;
    virtual void outstanding(SlotSet& slots) const = 0;
    virtual bool is_connected() const = 0;
    /// Whether the lane has asked the host to call flush().
    virtual bool wants_flush() const = 0;
    virtual std::size_t in_flight() const = 0;
    virtual std::size_t queued() const = 0;
    /// Its calls that have not ended.
    virtual std::size_t under_way() const = 0;
    /// Decides how many queued calls cause a send before the next flush(). Call it after flush(),
    /// with the sum of under_way() of all lanes of the loop.
    virtual void plan(std::size_t all) = 0;
    /// Whether the lane watches this descriptor.
    virtual bool watches(int fd) const = 0;
};

std::unique_ptr<LoopLane> make_loop_lane(const Options& options, std::shared_ptr<Dialer> dialer,
                                         LoopHost& host, std::shared_ptr<LoopConnections> loops,
                                         LaneOf lane);

std::unique_ptr<LoopConnection> make_loop_connection(const Options& options,
                                                     std::shared_ptr<Dialer> dialer, LoopHost& host,
                                                     std::shared_ptr<LoopConnections> loops);

class ClusterMap;
/// An event loop's connections to the nodes of a cluster.
std::unique_ptr<LoopConnection> make_cluster_loop_connection(
    const Options& options, std::shared_ptr<ClusterMap> map, LoopHost& host,
    std::shared_ptr<LoopConnections> loops);

}  // namespace hotcount::redis
