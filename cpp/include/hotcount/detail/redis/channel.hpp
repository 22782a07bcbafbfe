// Channels accept calls without waiting for their replies. A channel is the shared connection, or
// an event loop's own connection (LoopConnection).
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
    /// `done` gets the reply, or at most 50 ms after the deadline an error. The channel determines
    /// which thread calls `done`, and whether that may happen before submit() returns.
    /// If *cancelled is true before the call is sent, it is not sent and `done` is dropped.
    /// `cancelled` must live until then.
    virtual void submit(Request request, Deadline deadline, Completion<Reply> done,
                        const Cancelled* cancelled = nullptr) = 0;

    struct Call {
        Request request;
        Completion<Reply> done;
    };
    /// Submits calls that may run in any order. A channel that waits returns when all of them have
    /// ended. In a cluster they run on all nodes at once, and several `done` may run concurrently.
    virtual void submit_all(std::vector<Call> calls, Deadline deadline,
                            const Cancelled* cancelled = nullptr) {
        for (Call& call : calls) {
            submit(std::move(call.request), deadline, std::move(call.done), cancelled);
        }
    }
    /// Whether calls go to the nodes of a cluster: then all keys of a call must be in one slot.
    virtual bool is_cluster() const { return false; }
};

}  // namespace hotcount::redis

namespace hotcount {

/// The channel and the limits of an asynchronous call.
struct AsyncCall {
    /// Null: the store's shared connection, whose completions run_once() or a thread of the library
    /// calls. Stores without I/O need no channel and complete the call at once.
    redis::Channel* channel{nullptr};
    Timeout timeout{};
    const redis::Cancelled* cancelled{nullptr};
    /// The caller waits: its thread calls the completion before the call returns, as the channel
    /// Client::waiting() does.
    bool waits{false};
};

}  // namespace hotcount

namespace hotcount::redis {

// -- an event loop's own connection ----------------------------------------------------------------
//
//   submit --> queue --(flush)--> send ...  receive --(on_readable)--> completions
//
// Commands of one turn of the loop share a send. A send goes early when the queued calls are a
// third of the calls under way, at most 48, so that the server works while the loop does. Calls
// are combined, and fail, as on the shared connection (redis.hpp). Commands that may not return
// exactly one reply go over a second connection, one at a time.
//
// For the loop's thread alone: no locks, no thread of its own, and nothing here blocks. The client's
// dialer, which has threads of its own, opens the connection.

/// The interface through which a connection uses its loop. Functions of the connection call it, in
/// the loop's thread.
class LoopHost {
  public:
    virtual ~LoopHost() = default;
    enum class Interest : std::uint8_t { none, read, read_and_write };
    /// Watch a descriptor for `interest` only from now on, level-triggered. Call on_readable(fd)
    /// when it is readable, and on_writable() when it is writable. `none` comes before a close.
    virtual void watch(int fd, Interest interest) = 0;
    /// Call on_flush() once, after the callback that runs now.
    virtual void flush_soon() = 0;
    /// Call on_tick() once, after this delay, or earlier if an earlier call asked for that.
    virtual void tick_in(Duration delay) = 0;
};

/// When Options::max_queue calls wait to be sent, the next one fails with a capacity error before
/// submit() returns.
class LoopConnection : public Channel {
  public:
    /// Sends the queued calls, or starts connecting. In a cluster, on_flush() sends the calls for a
    /// node that owes replies, after all readable sockets have been read.
    virtual void flush() = 0;
    /// The loop's answer to flush_soon().
    virtual void on_flush() { flush(); }
    /// Reads the available replies and calls the completions of their calls. Does not send: call
    /// flush() after the code that the completions have started has run.
    virtual void on_readable(int fd) = 0;
    virtual void on_writable() = 0;
    /// Polls for the reply for up to Options::spin, instead of letting the loop sleep, when one
    /// command is on its way, the loop has nothing else to do and spinning has paid lately. Stops
    /// when `also`, the descriptor of the loop's selector, is readable. Returns the descriptor for
    /// on_readable(), or -1.
    virtual int spin(int also) = 0;
    /// Ends the calls whose deadline has passed. Like every function here but close() it calls at
    /// most 1,024 completions; if there are more, it asks for a tick at once.
    virtual void on_tick() = 0;
    /// Ends the calls under way (closed, or outcome_unknown) and refuses later ones.
    virtual void close() = 0;
    /// False after close(), and in a forked child, which must drop it for a new one.
    virtual bool usable() const = 0;
};

}  // namespace hotcount::redis
