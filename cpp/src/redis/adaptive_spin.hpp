// A lone caller looks for its reply before it sleeps: being woken takes longer than a server nearby
// takes to answer. It does so while it pays: a reply found in time is a point, one that came late
// costs four, and out of points it is tried once in 256 replies. On a machine that is busy with
// others, where a yield takes long, that ends it soon.
#pragma once

#include <sched.h>

#include <algorithm>
#include <hotcount/clock.hpp>

namespace hotcount::redis {

/// For one thread at a time.
class Look {
  public:
    explicit Look(Duration budget) : budget_(budget) {}

    bool pays() { return budget_ > Duration{0} && (points_ > 0 || ++replies_ % kAgain == 0); }

    enum class Seen : std::uint8_t { nothing, reply, other };
    /// Calls see() until it sees something or the time is over, in turn with whoever wants the
    /// core: whether a reply is there.
    template <class See>
    bool look(See&& see) {
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
