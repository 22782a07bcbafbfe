// Exact reads that would wait for a connection become one statement.
//
//   a reader   joins the reads that wait. If fewer statements are under way than may be, there are
//              none in most cases, and it sends its own at once
//   a leader   takes all that wait, sends one statement, and hands its turn to one of those that came
//              meanwhile before it wakes the others
//
// So nobody waits for longer than he would for a connection. With one statement at a time for the
// whole process the server does less, and its readers wait: the 99th percentile was three times as
// long.
//
// What was sent is joined by nobody: its snapshot may be older than a vote which the new reader
// knows to be acknowledged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/sql/value.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

namespace hotcount {

/// Thread-safe. For one process: a forked child needs one of its own.
class JoinedReads {
  public:
    using Counts = Result<std::vector<std::int64_t>>;
    /// Reads the counts of some items, by index, at one moment after it was called.
    using Read = std::function<Counts(std::span<const sql::Id> items, Deadline deadline)>;

    /// More items than that are read alone.
    static constexpr std::size_t kMostItems = 64;

    /// `most_at_once`: statements under way, for which there are as many connections.
    JoinedReads(Read read, std::size_t most_at_once);

    /// By index. A caller's deadline is his own; what one caller's read fails of fails no other's.
    Counts read(std::span<const sql::Id> items, Deadline deadline);

    /// Callers whose reads are to be sent yet.
    std::size_t waiting();

  private:
    struct Waiter;
    struct Group;

    // Under the mutex:
    std::shared_ptr<Group> join(std::span<const sql::Id> items, Waiter& self);
    void take_part(Group& group, Waiter& self, Deadline deadline,
                   std::unique_lock<std::mutex>& lock);
    void lead(Group& group, Waiter& self, Deadline deadline, std::unique_lock<std::mutex>& lock);
    void pass_turn();
    void leave(Group& group, Waiter& self);

    const Read read_;
    const std::size_t most_at_once_;
    std::mutex mutex_;
    std::shared_ptr<Group> open_;  // Those that wait to be sent; null if nobody does.
    std::size_t turns_{0};         // Statements under way, and turns handed on.
};

}  // namespace hotcount
