// Where calls are handed in without waiting for them: the shared connection, or an event loop's own,
// LoopConnection.
#pragma once

#include <atomic>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/detail/redis/request.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <utility>
#include <vector>

namespace hotcount::redis {

/// Set by a caller that no longer wants its call; read by the thread that sends.
using Cancelled = std::atomic<bool>;

class Channel {
  public:
    virtual ~Channel() = default;
    /// `done` gets the reply, or what is known at the deadline (at most 50 ms after it). Which thread
    /// calls `done`, and whether that may happen before submit() returns, depends on the channel.
    /// If *cancelled is true before the call is sent, it is not sent and `done` is dropped.
    /// `cancelled` must live until then.
    virtual void submit(Request request, Deadline deadline, Completion<Reply> done,
                        const Cancelled* cancelled = nullptr) = 0;

    struct Call {
        Request request;
        Completion<Reply> done;
    };
    /// Submits calls that need no order. A channel that waits returns when all have ended: of a cluster
    /// they are on all nodes at once, and `done` of several may be called at the same time.
    virtual void submit_all(std::vector<Call> calls, Deadline deadline,
                            const Cancelled* cancelled = nullptr) {
        for (Call& call : calls) {
            submit(std::move(call.request), deadline, std::move(call.done), cancelled);
        }
    }
    /// Whether calls go to the nodes of a cluster: then the keys of each are in one slot.
    virtual bool is_cluster() const { return false; }
};

}  // namespace hotcount::redis

namespace hotcount {

/// How a call is handed in.
struct AsyncCall {
    /// Null: the store's shared connection, whose completions run_once() or a thread of the library
    /// calls. Stores without I/O need no channel and complete the call at once.
    redis::Channel* channel{nullptr};
    Timeout timeout{};
    const redis::Cancelled* cancelled{nullptr};
    /// The caller waits: its thread calls the completion before the call returns. Over Redis that is
    /// what Client::waiting() does.
    bool waits{false};
};

}  // namespace hotcount

namespace hotcount::redis {

// -- an event loop's own connection ----------------------------------------------------------------
//
//   submit --> queue --(flush)--> send ...  receive --(on_readable)--> completions
//
// Commands of one turn of the loop share a send. A send goes early when as many calls are queued as a
// third of those that are under way, at most 48, so that the server works while the loop does. What is
// combined, and what a failure means, is as on the shared connection (redis.hpp). Commands that are
// not known to answer exactly once go over a second connection, one at a time.
//
// For the loop's thread alone: no locks, no thread of its own, and nothing here blocks. The client's
// dialer, which has threads of its own, opens the connection.

/// What a connection asks of its loop. Called in the loop's thread, from inside its functions.
class LoopHost {
  public:
    virtual ~LoopHost() = default;
    enum class Interest : std::uint8_t { none, read, read_and_write };
    /// Watch a descriptor for this and nothing else from now on, level-triggered. When it can be read
    /// call on_readable(fd), when it can be written on_writable(). `none` comes before it is closed.
    virtual void watch(int fd, Interest interest) = 0;
    /// Call on_flush() once, after what runs now.
    virtual void flush_soon() = 0;
    /// Call on_tick() once, after this delay, or earlier if that was asked for before.
    virtual void tick_in(Duration delay) = 0;
};

/// When Options::max_queue calls wait to be sent, one more ends with a capacity error before submit()
/// returns.
class LoopConnection : public Channel {
  public:
    /// Sends what is queued, or starts connecting. Of a cluster, a node that owes replies is sent more
    /// by on_flush(), when all sockets have been read that can be read now.
    virtual void flush() = 0;
    /// What flush_soon() asked for.
    virtual void on_flush() { flush(); }
    /// Reads what is there, and calls the completions of all calls that this answers. It does not
    /// send: call flush() when what the completions started has run.
    virtual void on_readable(int fd) = 0;
    virtual void on_writable() = 0;
    /// Polls for the reply for up to Options::spin, instead of letting the loop sleep, when one
    /// command is on its way, the loop has nothing else to do and spinning has paid lately. Stops
    /// when `also`, a descriptor that says what the loop waits for, can be read. Returns the
    /// descriptor to call on_readable() with, or -1.
    virtual int spin(int also) = 0;
    /// Ends the calls whose deadline has passed. Like every function here it calls at most 1,024
    /// completions; if there are more, it asks for a tick at once.
    virtual void on_tick() = 0;
    /// Ends the calls under way (closed, or outcome_unknown) and refuses later ones.
    virtual void close() = 0;
    /// False after close(), and in a forked child, which must drop it for a new one.
    virtual bool usable() const = 0;
};

}  // namespace hotcount::redis
