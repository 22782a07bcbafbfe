// When a node of a cluster last said anything to this process, and whether it may have been replaced
// since: for all lanes to that node, of threads and of event loops. Decisions only: no I/O, no lock.
//
// After a silence all lanes doubt the node, until another node has confirmed it. The lane that hears it
// first ends the silence for all: without a common doubt, the replies in the other lanes' sockets
// would count, which the node may have sent after its successor was elected.
//
// A node that was replaced may have its slots again before a late lane reads: one of an event loop that
// stood still in a blocking call. So the time of the replacement is kept as well.
#pragma once

#include <atomic>
#include <hotcount/clock.hpp>
#include <optional>

namespace hotcount::redis {

/// Thread-safe.
class NodeHeard {
  public:
    /// A lane has read something from the node. Returns the time of a doubt that nothing has settled.
    std::optional<SteadyTime> hear(SteadyTime now, Duration silence) {
        // In this order: a lane that sees the end of the silence sees the doubt.
        if (now - heard_.load() > silence) raise(doubted_, now);
        heard_.store(now);
        const SteadyTime doubted = doubted_.load();
        return doubted > confirmed_.load() ? std::optional{doubted} : std::nullopt;
    }
    /// Another node, asked at this time, has said that this one owns its slots.
    void confirm(SteadyTime asked_at) { raise(confirmed_, asked_at); }
    SteadyTime last() const { return heard_.load(); }
    /// A map shows that the node has lost its slots, or lost and regained them, since the map before.
    void replaced(SteadyTime now) { raise(replaced_, now); }
    /// A late reply to a call that was sent before this time may acknowledge a write that is lost.
    SteadyTime replaced_at() const { return replaced_.load(); }

  private:
    // The first reply follows a silence.
    static constexpr SteadyTime kNever{SteadyTime::min().time_since_epoch() / 2};

    static void raise(std::atomic<SteadyTime>& latest, SteadyTime time) {
        SteadyTime known = latest.load();
        while (known < time && !latest.compare_exchange_weak(known, time)) {
        }
    }

    std::atomic<SteadyTime> heard_{kNever};
    std::atomic<SteadyTime> doubted_{kNever};
    std::atomic<SteadyTime> confirmed_{kNever};
    std::atomic<SteadyTime> replaced_{kNever};
};

}  // namespace hotcount::redis
