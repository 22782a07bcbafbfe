// A caller that is alone on a connection polls for its reply before it sleeps, because to be woken
// takes longer than a server nearby takes to answer.
//
// The spin goes on only while it pays. A reply that comes in time earns a point, one that comes late
// costs four. Without points the caller spins only once in 256 replies. On a busy machine a yield
// takes long, so the points are gone soon. For one thread at a time.
#pragma once

#include <sched.h>

#include <algorithm>
#include <hotcount/clock.hpp>

namespace hotcount::redis {

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

}  // namespace hotcount::redis
