// A bounded pool of connections, first come, first served, safe across fork.
//
// A caller that finds no idle connection opens one, if the pool is below its bound. If the server
// itself has no room for another session, the callers wait for connections that come back, and one
// of them, the prober, tries to open another from time to time. Around a fork the pool is frozen: it
// holds its mutex, so that parent and child both go on from a state that no thread was changing. The
// database chooses what happens to the connections: AtFork.
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

namespace hotcount::sql {

enum class AtFork : std::uint8_t {
    close,    ///< The fork waits until every connection is back, and closes them all.
    keep,     ///< It waits likewise; parent and child go on with a copy each.
    abandon,  ///< It waits for nothing; the child forgets them, and its owner closes their sockets.
};

/// Whether the server, or a pooler before it, refused a session for want of room: one may come free.
bool is_out_of_room(const Error& error);
/// Logs whether a server could be reached by an attempt that began then. A deadline that passed within a
/// second says nothing of the server.
void note_reached(Trouble& outage, const Result<void>& connected, SteadyTime began);
/// The error for a caller that has waited until its deadline after such a refusal.
Error no_room_in_time(Error refusal, int attempts);

class Pool : public std::enable_shared_from_this<Pool> {
  public:
    using Open = std::function<Result<std::unique_ptr<Connection>>(Deadline)>;

    /// Connections that nobody used for `idle_timeout` are closed; without one, never. The pool is
    /// held by a shared_ptr then.
    Pool(std::string name, std::size_t max_connections, Open open,
         std::optional<Duration> idle_timeout = {});

    Result<Lease> lease(Deadline deadline);
    /// An idle connection, if there is one and room for others besides. `lent` is false again when
    /// it comes back.
    std::optional<Lease> lease_idle(Deadline deadline, std::atomic<bool>& lent);
    /// Whether it has no connection, idle or out.
    bool empty();
    /// Refuses further leases and closes what is idle; leases still out are closed on return.
    void close();
    /// The same, and returns when no thread of ours is about to close an idle one: before what the
    /// connections refer to goes.
    void stop();
    /// Closes what is idle now.
    void close_idle();
    /// Called when the server has no room, outside of all locks: what is idle elsewhere may go.
    void on_no_room(std::function<void()> call) { make_room_ = std::move(call); }
    /// The server's last refusal for want of room, if no caller got a connection since.
    std::optional<Error> refusal();

    /// Before a fork. Keeps the pool locked until thaw().
    void freeze(AtFork connections);
    /// In a child the waiting threads do not exist any more: they are forgotten.
    void thaw(bool in_child);

  private:
    struct Idle {
        std::unique_ptr<Connection> connection{};
        SteadyTime since{};
    };
    // One caller waiting its turn. Lives on that caller's stack while it is in waiters_.
    struct Waiter {
        Event granted{};     // Served, or made the prober.
        bool served{false};  // Out of waiters_, and counted in out_.
        Idle given{};        // Without a connection it may open one itself.
    };
    struct Refusal {
        Error error;
        int attempts;
    };
    // What one step of lease() comes to: nothing if the caller waits again.
    using Step = std::optional<Result<Lease>>;

    Step await(Waiter& self, Deadline deadline);
    Step use(Waiter& self, Deadline deadline);
    Step open_now(Waiter& self, Deadline deadline);
    Step probe(Waiter& self, Deadline deadline);
    Lease wrap(std::unique_ptr<Connection> connection);
    void give_back(Connection* connection);

    // Under the mutex.
    void serve_waiters();
    Idle take_idle();
    bool queue_for_room(Waiter& self, const Error& error);
    void pass_probe();
    void leave(Waiter& self);
    Error late() const;
    Error failed(Error error) const;
    Error closed() const;
    void schedule_sweep();

    void sweep();

    const std::string name_;
    const std::size_t max_connections_;
    const Open open_;
    const std::optional<Duration> idle_timeout_;
    std::function<void()> make_room_;

    std::mutex mutex_;
    std::condition_variable all_back_;
    std::deque<Idle> idle_;  // The one that was used last is last.
    std::deque<Waiter*> waiters_;
    std::size_t out_{0};
    bool no_room_{false};             // Callers wait after the server's refusal.
    std::optional<Refusal> refusal_;  // The last one, until nobody waits and a caller got one.
    Waiter* prober_{nullptr};         // Who tries again meanwhile; in waiters_, or dialling.
    bool sweep_is_due_{false};        // One is scheduled.
    int sweeping_{0};                 // Threads that close what expired.
    bool frozen_{false};
    AtFork at_fork_{AtFork::keep};
    bool closed_{false};
};

}  // namespace hotcount::sql
