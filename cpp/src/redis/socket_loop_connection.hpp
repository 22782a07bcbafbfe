// How a client makes the connections of event loops, and their counts for Client::stats().
#pragma once

#include <atomic>
#include <functional>
#include <hotcount/detail/redis/channel.hpp>
#include <map>
#include <memory>
#include <mutex>

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

std::unique_ptr<LoopConnection> make_loop_connection(const Options& options,
                                                     std::shared_ptr<Dialer> dialer, LoopHost& host,
                                                     std::shared_ptr<LoopConnections> loops);

}  // namespace hotcount::redis
