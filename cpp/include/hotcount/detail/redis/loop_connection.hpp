// A connection that belongs to one event loop.
//
//   submit --> queue --(flush)--> send ...  receive --(on_readable)--> completions
//
// Commands of one turn of the loop share a send; a send goes early with a third of the calls that
// are under way, at most 48, so that the server works while the loop does. No locks and no thread
// of its own: everything here is for the loop's thread alone and never blocks; connecting is done
// by the client's housekeeper thread. Combining and what a failure means are those of the shared
// connection. Commands that are not known to answer exactly once go over a second connection, one at a
// time.
#pragma once

#include <hotcount/detail/redis/channel.hpp>
#include <hotcount/result.hpp>
#include <memory>

namespace hotcount::redis {

/// What a lane asks of its loop. Called in the loop's thread, from inside the lane's functions.
class LoopHost {
  public:
    virtual ~LoopHost() = default;
    enum class Interest : std::uint8_t { none, read, read_and_write };
    /// Watch a descriptor for this and nothing else from now on. Level-triggered.
    /// Reading: on_readable(fd). Writing: on_writable(). none comes before the descriptor closes.
    virtual void watch(int fd, Interest interest) = 0;
    /// Call flush() once, after what runs now.
    virtual void flush_soon() = 0;
    /// Call on_tick() once, in so long, or earlier where that was asked for before.
    virtual void tick_in(Duration delay) = 0;
};

/// With Options::max_queue calls waiting to be sent a call ends with a capacity error before
/// submit() returns.
class LoopLane : public Channel {
  public:
    /// Sends what is queued, or starts connecting.
    virtual void flush() = 0;
    /// Reads what is there, and calls the completions of all that is answered by it. It does not
    /// send: call flush() when what the completions started has run.
    virtual void on_readable(int fd) = 0;
    virtual void on_writable() = 0;
    /// Where one command is on its way and the loop has nothing else to do: looks for the reply for
    /// up to Options::spin, while that pays, instead of letting the loop sleep. Stops where `also`,
    /// a descriptor that says what the loop waits for, has something. The descriptor to call
    /// on_readable() with, or -1.
    virtual int look(int also) = 0;
    /// Ends the calls whose deadline has passed. Like every function here it calls 1,024
    /// completions at most, and asks for a tick at once where there are more.
    virtual void on_tick() = 0;
    /// Ends what is under way (closed, or unknown) and refuses what comes later.
    virtual void close() = 0;
    /// False after close(), and in a forked child, where it must be dropped for a new one.
    virtual bool usable() const = 0;
};

}  // namespace hotcount::redis
