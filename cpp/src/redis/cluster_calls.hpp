// The calls of one channel on a cluster: chooses a lane for each call, moves calls that leave a
// lane, and holds calls that wait for a map, for the end of a pause, or for earlier calls of their
// slot.
//
//   submit -> place: the lane of the slot's owner --answer--> the caller
//                ^                    |
//                '-- pause, redirect -'  a call that left its lane keeps its last error
//
// After a slot has moved, its new calls wait until the lane of the former owner has answered all
// earlier calls or their callers have given up, and until the calls that this node redirected have
// been sent: order per key holds over one move. Further moves meanwhile, and pauses, may reorder
// asynchronous calls.
//
// No I/O and no threads of its own: `Lanes` has them. Thread-safe; it calls no completion under its lock.
// Lock order: this, then a lane, then the router.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "router.hpp"
#include "shared_connection.hpp"

namespace hotcount::redis {

/// The lanes of one channel: a connection for each node.
class Lanes {
  public:
    virtual ~Lanes() = default;
    /// Hands the call to the node's lane, or returns the lane's error. Calls no completion.
    virtual std::optional<Error> push(std::uint16_t node, const OperationPtr& operation) = 0;
    /// Adds the slots of calls that the lane has not answered.
    virtual void outstanding(std::uint16_t node, SlotSet& slots) = 0;
    /// Hands back the calls that a lane without a connection has not sent.
    virtual void evict(std::uint16_t node) = 0;
    /// Asks for a newer map.
    virtual void want_map() = 0;
    /// Calls look() at this time or before, and when there is a newer map.
    virtual void look_at(SteadyTime time) = 0;
    /// The error of the last request for a map, if it began after this time and failed.
    virtual std::optional<Error> no_map_since(SteadyTime time) = 0;
    /// The error of a call whose deadline passes before there is a map.
    virtual Error why_none() = 0;
};

class ClusterCalls {
  public:
    ClusterCalls(Router& router, Lanes& lanes);

    /// An asynchronous call. A batch is split into its commands.
    void submit(Request&& request, Deadline deadline, Completion<Reply>&& done,
                const Cancelled* cancelled);

    // -- calls that a thread waits for: it goes from lane to lane with its call
    /// Waits for the node whose lane may take the call; the error at the call's deadline.
    Result<std::uint16_t> wait_for_node(Operation& operation);
    /// Prepares the next attempt of a call that left this node's lane; the error if the call ends.
    Result<void> follow(Operation& operation, std::uint16_t from);

    // -- events of lanes and maps
    void left(std::uint16_t node, const OperationPtr& operation);
    void answered(std::uint16_t node);
    /// Moves calls whose pause is over or whose slot has an owner, and ends calls that are late.
    void look();
    void close(const Error& closed);
    /// The number of asynchronous calls that are in no lane.
    std::size_t waiting() const;

  private:
    using Lock = std::unique_lock<std::mutex>;
    using Ended = std::vector<std::pair<OperationPtr, Error>>;

    // A slot that has moved while its former owner still has calls to answer.
    struct Moving {
        std::uint16_t from;
        std::deque<OperationPtr> redirected;
        std::deque<OperationPtr> fresh;
    };
    struct Waiting {
        OperationPtr operation;
        SteadyTime until;  // Of a pause; or kForMap.
        Error why;
    };
    static constexpr SteadyTime kForMap = SteadyTime::max();
    static constexpr std::uint16_t kMoving = 0xfffe;

    void start(const OperationPtr& operation);
    std::uint16_t place(std::uint16_t slot);
    void sync(Lock& lock);
    void route(const OperationPtr& operation, bool redirected, Ended& ended);
    void put(std::uint16_t node, const OperationPtr& operation, Ended& ended);
    void release(std::uint16_t node, Ended& ended);
    void wait_with(const OperationPtr& operation, SteadyTime until, Error why);
    void look_by(SteadyTime time);
    Error no_owner();
    void run_evictions(Lock& lock);
    static Error outcome_of(const Operation& operation, const Error& why);
    static void end(const Ended& ended);
    std::uint64_t next_number() { return numbers_.fetch_add(1, std::memory_order_relaxed); }

    Router& router_;
    Lanes& lanes_;
    std::array<std::atomic<std::uint16_t>, kSlots> view_;  // As the router has it, or kMoving.
    std::atomic<std::uint64_t> seen_{0};                   // The router's version.
    std::atomic<std::size_t> moving_count_{0};
    std::atomic<std::uint64_t> numbers_{0};
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::map<std::uint16_t, Moving> moving_;
    std::deque<Waiting> waiting_;
    std::vector<std::uint16_t> evictions_;
    SteadyTime next_look_{SteadyTime::max()};  // That was asked for.
    std::optional<Error> closed_;
};

}  // namespace hotcount::redis
