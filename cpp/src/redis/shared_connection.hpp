// A connection that threads share: each caller that waits does the work for all.
//
//   caller --> queue --(write role)--> send --> flights, in order --(read role)--> answers
//
// A flight is one command in flight, with the calls that its reply answers (multiplexer.hpp, which
// also documents combining and failures). There are two roles, each held by at most one caller. The
// writer encodes and sends all queued calls. The reader receives, gives every reply to the oldest
// flight and wakes its callers. Either also serves asynchronous calls, and so does run_once().
// connection_roles.hpp decides which caller takes a role or is woken for it.
//
// Thread-safe. State is per process: the client keeps it in a ForkLocal. A caller that is alone sends
// and receives in its own thread, and wakes no other.
#pragma once

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <hotcount/clock.hpp>
#include <hotcount/detail/redis/options.hpp>
#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "connection_parts.hpp"
#include "connection_roles.hpp"

namespace hotcount::redis {

/// The only caller on a connection polls for its reply before it sleeps, because a wakeup takes
/// longer than the answer of a server nearby.
///
/// A reply within the spin earns a point, a later reply costs four. Without points the caller spins
/// only once in 256 replies. On a busy machine a yield takes long, so the points are soon used up.
/// For one thread at a time.
class AdaptiveSpin {
  public:
    explicit AdaptiveSpin(Duration budget) : budget_(budget) {}

    /// Whether to spin for the next reply.
    bool pays() { return budget_ > Duration{0} && (points_ > 0 || ++replies_ % kAgain == 0); }

    enum class Seen : std::uint8_t { nothing, reply, other };
    /// Calls see() until it sees something or the budget is spent, and yields the core in between.
    /// Returns whether a reply is there.
    template <class See>
    bool run(See&& see) {
        const SteadyTime until = std::chrono::steady_clock::now() + budget_;
        while (true) {
            const Seen seen = see();
            const bool in_time = std::chrono::steady_clock::now() < until;
            if (seen == Seen::other) return false;
            if (seen == Seen::reply || !in_time) {
                const bool paid = seen == Seen::reply && in_time;
                points_ = std::clamp(points_ + (paid ? 1 : -kLate), 0, kMostPoints);
                return seen == Seen::reply;
            }
            sched_yield();
        }
    }

  private:
    static constexpr int kMostPoints = 32;
    static constexpr int kLate = 4;
    static constexpr unsigned kAgain = 256;

    const Duration budget_;
    int points_{1};
    unsigned replies_{0};
};

class SharedConnection : public std::enable_shared_from_this<SharedConnection>,
                         private ConnectionParts {
  public:
    using ConnectionParts::Counts;

    SharedConnection(const Options& options, std::shared_ptr<Dialer> dialer, LaneOf lane = {})
        : ConnectionParts(options, std::move(dialer), std::move(lane)) {}

    /// Returns the reply by the deadline, or an error that tells whether the call may have run.
    Result<Reply> execute(Request&& request, Deadline deadline);
    /// The same. In a lane, the result has no meaning if the call has left it
    /// (Operation::has_left()).
    Result<Reply> execute(const OperationPtr& operation);
    /// Queues the call and returns. The thread that drives the connection calls its completion.
    void submit(const OperationPtr& operation);
    /// Queues the call, or returns the reason for which it cannot.
    std::optional<Error> take(const OperationPtr& operation);
    /// Sends and receives until an asynchronous call has ended; returns the number that ended.
    std::size_t run_once(Deadline deadline);
    /// The number of asynchronous calls that have not ended.
    std::size_t unwaited();
    void close();

    // -- a lane (multiplexer.hpp)
    void evict(const Error& why);
    void confirm(bool owns, SteadyTime asked_at);
    std::optional<SteadyTime> doubted_since();
    void outstanding(SlotSet& slots);
    bool is_connected();

    Counts counts();

  private:
    using Lock = std::unique_lock<std::mutex>;

    // The event for which a thread works: the end of its own call, or of any asynchronous call.
    struct Goal {
        const Operation* own;
        std::uint64_t completed_before;
    };

    Result<void> enqueue(Lock& lock, const OperationPtr& operation, Deadline deadline);
    Result<Reply> await(Lock& lock, const OperationPtr& operation, Deadline deadline);
    bool reached(const Goal& goal) const;
    ConnectionRoles::Work work() const {
        const bool to_send = !dialing_ && multiplexer_.has_to_send();
        return {to_send, multiplexer_.half_sent(), multiplexer_.load()};
    }
    SteadyTime wait_until(const Goal& goal, Deadline deadline) const;
    void write(Lock& lock, const Goal& goal, Deadline deadline);
    bool connected();
    void ask_for_connection();
    void dialed(Result<std::unique_ptr<Connection>> opened);
    void read(Lock& lock, const Goal& goal, Deadline deadline);
    bool gather(Lock& lock);
    Result<bool> receive(Lock& lock, const std::shared_ptr<Connection>& connection);
    bool wait_for_socket(Lock& lock, const std::shared_ptr<Connection>& connection,
                         const Goal& goal, Deadline deadline);
    void give_up_silent();
    void break_connection(const Error& why, bool resend = true);
    void sleep(Lock& lock, Sleeper& sleeper, Deadline deadline);
    void hand_on();
    void leave(Lock& lock);
    void tell_finished(Lock& lock);
    void tell_finished_in_lane(Lock& lock, const std::vector<OperationPtr>& finished);

    std::mutex mutex_;
    std::condition_variable room_;                                   // For calls in the queue.
    std::shared_ptr<Signal> gathering_{std::make_shared<Signal>()};  // Of newly queued calls.
    std::vector<Reply> replies_;                                     // The reader's.
    AdaptiveSpin spin_{options_.spin};                               // The reader's.
    AdaptiveSpin pause_{Multiplexer::kSoon};                         // The reader's, for gather().
    ConnectionRoles roles_;
    bool dialing_{false};         // The dialer was asked for a connection and has not answered.
    unsigned places_{0};          // The number of places given to callers.
    std::uint64_t completed_{0};  // Asynchronous calls that ended.
};

/// The common part of the clients of one server and of a cluster: statistics and ping().
class CountingClient : public Client {
  public:
    /// Of all connections in this process.
    virtual SharedConnection::Counts counts() const = 0;
    Stats stats() const override;
    Result<void> ping(Timeout timeout) final;
};

// -- background_thread.cpp ------------------------------------------------------------------------

/// A client's own thread: it sends and receives on the shared connection for asynchronous calls
/// while the application has not called run_once() for 50 ms. It starts with the first asynchronous
/// call, and never touches Python.
///
/// Thread-safe. Per process: a forked child starts its own thread with its first asynchronous call.
class BackgroundThread {
  public:
    /// `alone`: the application never drives the connection, so the thread does not wait 50 ms
    /// first.
    explicit BackgroundThread(std::shared_ptr<SharedConnection> connection, bool alone = false);
    /// Does not join the thread, which keeps the connection until its turn of at most 20 ms has
    /// ended.
    ~BackgroundThread();
    BackgroundThread(const BackgroundThread&) = delete;
    BackgroundThread& operator=(const BackgroundThread&) = delete;

    /// Starts the thread unless it runs. Fails with a capacity error if the system refuses a
    /// thread.
    Result<void> start();
    /// Wakes the thread for asynchronous calls. Only after start() has succeeded once.
    void look_after_calls();
    /// The application drives the connection: the thread leaves it alone for 50 ms.
    void driven();

  private:
    struct State {
        std::mutex mutex;
        std::condition_variable changed;
        bool calls{false};
        bool stop{false};
        SteadyTime driven_until{};
    };
    static void work(State& state, SharedConnection& connection);

    const std::shared_ptr<SharedConnection> connection_;
    const std::shared_ptr<State> state_;
    const bool alone_;
    std::atomic<bool> begun_{false};
};

}  // namespace hotcount::redis
