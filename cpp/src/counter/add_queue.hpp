// What a RetryingCounter hands its adds to, one for each process: RetryEngine, or the unsafe queue that
// is kept to compare with.
#pragma once

#include <functional>
#include <hotcount/redis.hpp>
#include <hotcount/retry_queue.hpp>
#include <memory>
#include <string>

namespace hotcount {

struct RetrySettings {
    std::shared_ptr<redis::Client> client;
    CounterOptions options;
    RetryQueue queue;
};

class AddQueue {
  public:
    virtual ~AddQueue() = default;

    /// Calls `done` by the deadline. It may send the add itself and wait for the answer.
    virtual void add_waiting(std::string key, std::int64_t n, Deadline deadline,
                             Completion<Added> done) = 0;
    /// Calls `done` in a thread of the queue's, by the deadline, or before it returns if the add is
    /// refused at once.
    virtual void push(std::string key, std::int64_t n, Deadline deadline, Completion<Added> done,
                      const redis::Cancelled* cancelled) = 0;
    virtual RetryStats stats() const = 0;
    /// Waits for the queue to be empty, then as stop().
    virtual std::size_t drain(Deadline deadline) = 0;
    /// Ends the thread and lets go of the journal; waits for that for at most two seconds. Returns how
    /// many adds wait.
    virtual std::size_t stop() = 0;
};

/// Begins an add and waits for its answer, by the deadline and the time that a disk takes.
Result<Added> wait_for_added(std::string_view key, Deadline deadline,
                             const std::function<void(Completion<Added>)>& begin);

/// The queue of a method other than script. Defined in unsafe/, a room above this one.
std::shared_ptr<AddQueue> make_unsafe_queue(std::shared_ptr<const RetrySettings> settings);

}  // namespace hotcount
