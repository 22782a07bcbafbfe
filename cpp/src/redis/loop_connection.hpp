// How a client makes the connections of event loops, and what it knows of them.
#pragma once

#include <atomic>
#include <functional>
#include <hotcount/detail/redis/loop_connection.hpp>
#include <map>
#include <memory>
#include <mutex>

#include "dialer.hpp"
#include "shared_connection.hpp"

namespace hotcount::redis {

/// The lanes of a client's loops, as far as other threads may know of them. Thread-safe.
class LoopLanes {
  public:
    std::atomic<bool> closed{false};

    /// A lane's counts, which it brings up to date now and then.
    void report(const void* lane, const Lane::Counts& counts);
    /// The lane ends: its counts stay.
    void forget(const void* lane);
    void add_to(Lane::Counts& counts) const;

  private:
    mutable std::mutex mutex_;
    std::map<const void*, Lane::Counts> live_;
    Lane::Counts ended_;
};

std::unique_ptr<LoopLane> make_loop_lane(const Options& options, std::shared_ptr<Dialer> dialer,
                                         LoopHost& host, std::shared_ptr<LoopLanes> lanes);

}  // namespace hotcount::redis
