// Where calls are handed in without waiting for them: the shared connection, or an event loop's own.
#pragma once

#include <atomic>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/detail/redis/request.hpp>

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
