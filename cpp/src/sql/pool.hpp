// A bounded pool of connections, first come, first served, safe across fork.
//
// A connection is opened by the caller who finds none idle and room below the bound. Around a fork
// the pool is frozen: it holds its mutex, so that parent and child both go on from a state no thread
// was changing. What becomes of the connections is the database's choice: AtFork.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <hotcount/base/event.hpp>
#include <hotcount/sql/database.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace hotcount::sql {

enum class AtFork : std::uint8_t {
    close,    ///< The fork waits until every connection is back, and closes them all.
    keep,     ///< It waits likewise; parent and child go on with a copy each.
    abandon,  ///< It waits for nothing; the child forgets them, and its owner closes their sockets.
};

class Pool {
  public:
    using Open = std::function<Result<std::unique_ptr<Connection>>(Deadline)>;

    Pool(std::string name, std::size_t max_connections, Open open);

    Result<Lease> lease(Deadline deadline);
    /// Refuses further leases and closes what is idle; leases still out are closed on return.
    void close();

    /// Before a fork. Keeps the pool locked until thaw().
    void freeze(AtFork connections);
    /// In a child the waiting threads do not exist any more: they are forgotten.
    void thaw(bool in_child);

  private:
    // One caller waiting its turn. Lives on that caller's stack while it is in waiters_.
    struct Waiter {
        Event granted;
        std::unique_ptr<Connection> connection;  // Null where it may open a new one itself.
    };

    void give_back(Connection* connection);
    void serve_waiters();
    Result<Lease> open_now(Deadline deadline);
    Lease wrap(std::unique_ptr<Connection> connection);

    const std::string name_;
    const std::size_t max_connections_;
    const Open open_;

    std::mutex mutex_;
    std::condition_variable all_back_;
    std::vector<std::unique_ptr<Connection>> idle_;
    std::deque<Waiter*> waiters_;
    std::size_t out_{0};
    bool frozen_{false};
    AtFork at_fork_{AtFork::keep};
    bool closed_{false};
};

}  // namespace hotcount::sql
