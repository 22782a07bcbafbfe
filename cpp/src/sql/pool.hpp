// A bounded pool of connections, first come, first served, safe across fork.
//
// A caller that finds no idle connection opens one, if the pool is below its bound. If the server
// refuses another session because it is full, the callers wait for connections that come back, and one
// of them, the sole opener, retries to open one. Around a fork the pool is frozen: it holds its mutex,
// so that parent and child both continue from a consistent state. The database chooses what happens to
// the connections: AtFork.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <hotcount/detail/base/event.hpp>
#include <hotcount/detail/base/log.hpp>
#include <hotcount/sql.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/backoff.hpp"

namespace hotcount::sql {

/// The pauses after conflicts that end with a transaction, such as deadlocks.
inline constexpr Backoff kLockBackoff{std::chrono::microseconds{100},
                                      std::chrono::microseconds{25'600}};
/// For a server that starts, fails over or has no room for a session; each attempt opens a
/// connection.
inline constexpr Backoff kServerBackoff{std::chrono::milliseconds{4},
                                        std::chrono::milliseconds{512}};
/// Sleeps after so many failures, 1 or more. False, at once, if the deadline is nearer than the
/// pause; false if it has passed or the thread was interrupted.
bool pause_before_retry(const Backoff& range, int failures, Deadline deadline);

enum class AtFork : std::uint8_t {
    close,    ///< The fork waits until every connection is back, and closes them all.
    keep,     ///< The fork waits likewise; parent and child keep a copy each.
    abandon,  ///< The fork does not wait; the child drops them, and its owner closes their sockets.
};

/// True if the server, or a pooler before it, had no room for another session.
bool is_out_of_room(const Error& error);
/// Logs the begin and end of an outage. `began`: when the attempt to connect began; a deadline that
/// passed within a second is no sign of an outage.
void note_reached(Trouble& outage, const Result<void>& connected, SteadyTime began);
/// The error for a caller that has waited until its deadline after is_out_of_room().
Error no_room_in_time(Error refusal, int attempts);

class Pool : public std::enable_shared_from_this<Pool> {
  public:
    using Open = std::function<Result<std::unique_ptr<Connection>>(Deadline)>;

    /// Connections that were idle for `idle_timeout` are closed; without one, never. With an
    /// idle_timeout the pool must be held by a shared_ptr.
    Pool(std::string name, std::size_t max_connections, Open open,
         std::optional<Duration> idle_timeout = {});

    Result<Lease> lease(Deadline deadline);
    /// Returns an idle connection if there is one and the bound leaves room for another lease. Sets
    /// `lent` to false when the connection comes back.
    std::optional<Lease> lease_idle(Deadline deadline, std::atomic<bool>& lent);
    /// True if the pool has no connection, idle or leased.
    bool empty();
    /// Refuses further leases and closes idle connections; leased ones are closed on return. Callers
    /// that wait for a connection, or open one, get a closed error.
    void close();
    /// Closes the pool, and returns when no thread of it is closing a connection, so that
    /// objects to which the connections refer may be destroyed.
    void stop();
    /// Closes the connections that are idle now.
    void close_idle();
    /// `call` runs without locks when the server has no room, to close idle connections of other
    /// pools.
    void on_no_room(std::function<void()> call) { make_room_ = std::move(call); }
    /// The server's last is_out_of_room() error, if no caller got a connection since.
    std::optional<Error> refusal();

    /// Before a fork. Keeps the pool locked until thaw().
    void freeze(AtFork connections);
    /// After a fork. In a child it drops the waiters, whose threads do not exist there.
    void thaw(bool in_child);

  private:
    struct Idle {
        std::unique_ptr<Connection> connection{};
        SteadyTime since{};
    };
    // A waiting caller. Lives on that caller's stack while it is in waiters_.
    struct Waiter {
        Event woken{};       // Served, made the sole opener, or the pool is closed.
        bool served{false};  // Out of waiters_, and counted in out_.
        Idle given{};        // If it has no connection, the caller may open one.
        unsigned pauses{0};  // As the sole opener.
    };
    struct Refusal {
        Error error;
        int attempts;
    };
    // The result of one step of lease(); nullopt if the caller must wait again.
    using Step = std::optional<Result<Lease>>;

    Step advance(Waiter& self, Deadline deadline);
    Step use(Waiter& self, Deadline deadline);
    Step open(Waiter& self, Deadline deadline);
    Lease wrap(std::unique_ptr<Connection> connection);
    void give_back(Connection* connection);
    bool is_closed();
    Error closed_error() const;
    void sweep();

    // Require the mutex.
    void serve_waiters();
    Idle take_idle();
    void wait_for_room(Waiter& self, const Error& refusal);
    void pass_on_opening();
    void forget_refusal();
    void leave(Waiter& self);
    Error late_error() const;
    Error open_error(Error error) const;
    void schedule_sweep();
    template <class Connections>
    void close_apart(std::unique_lock<std::mutex>& lock, Connections& connections);

    const std::string name_;
    const std::size_t max_connections_;
    const Open open_;
    const std::optional<Duration> idle_timeout_;
    std::function<void()> make_room_;

    std::mutex mutex_;
    std::condition_variable all_back_;
    std::deque<Idle> idle_;  // In the order of their last use.
    std::deque<Waiter*> waiters_;
    std::size_t out_{0};
    bool server_is_full_{false};  // It had no room, and callers wait.
    // The last refusal, until a caller gets a connection and none waits.
    std::optional<Refusal> refusal_;
    Waiter* sole_opener_{nullptr};  // If the server is full. In waiters_, or opening a connection.
    bool sweep_is_due_{false};      // A sweep is scheduled.
    int closing_{0};                // Threads in close_apart().
    bool frozen_{false};
    AtFork at_fork_{AtFork::keep};
    bool closed_{false};
};

}  // namespace hotcount::sql
