// Decides whether a reply that was read from a primary counts, although the Sentinels may have
// replaced that primary while this process stood still (SIGSTOP, a frozen container, a VM that was
// paused, a machine without a free core). Decisions only: no I/O, no threads, no lock.
//
// A process that runs learns of an election by the Sentinels' messages, before the replica is
// promoted. After a standstill the replies of the replaced primary and the messages lie in the sockets
// side by side, and either may be read first. A *round* settles it: all Sentinels are asked, and the
// connections to every server that they do not name end.
//
// A reply counts if one of these holds:
//  1. A round that was asked after the reply was read confirmed the primary: whatever the primary had
//     sent by then, it had sent before its successor was elected.
//  2. Since the last round was asked, the process has not stood still for kStandstill, and a majority
//     of the looks is younger than kRecent: the messages would have come.
//
// Rule 1 bounds the wait. A reply waits for the round that is under way and for the one after it, at
// most, however often the process stands still meanwhile: a later standstill refutes rule 2 only.
//
// One thread calls beat() each kBeat. A beat that comes kStandstill after the last one ends a standstill,
// of the process or of the thread alone: the threads that read the messages may have been late too.
// Not noticed: a pause during which the system's monotonic clock stands still.
#pragma once

#include <algorithm>
#include <atomic>
#include <hotcount/clock.hpp>

namespace hotcount::redis {

class Belief {
  public:
    static constexpr Duration kBeat = std::chrono::milliseconds{50};
    /// Shorter than the time from a Sentinel's message to the promotion: two of its ticks, which take 52
    /// to 100 ms each. So a process that has stood still for less has read the message before the replaced
    /// primary sends replies that do not count.
    static constexpr Duration kStandstill = std::chrono::milliseconds{100};
    /// The maximum age of a majority's answers to the periodic looks.
    static constexpr Duration kRecent = std::chrono::milliseconds{2500};

    /// One thread calls it, each kBeat; the first time before any reply is read.
    void beat(SteadyTime now) {
        const SteadyTime last = beat_.load();
        // In this order: a reader that sees the new beat sees the standstill before it.
        if (last != SteadyTime{} && now - last >= kStandstill) stood_still_until_ = now;
        beat_ = now;
    }
    /// The connections that a majority's answers refute have ended; they were asked at this time.
    void looked(SteadyTime asked_at) { raise(looked_, asked_at); }
    /// The same for a round.
    void confirmed(SteadyTime asked_at) { raise(confirmed_, asked_at); }

    SteadyTime last_look() const { return looked_.load(); }
    /// Whether replies wait for a round.
    bool wants_round(SteadyTime now) const {
        return confirmed_.load() < stood_still_until_.load() || now - looked_.load() >= kRecent;
    }

    /// Whether a reply counts that was read at `read_at` or before. `now` reads the clock.
    template <class Clock>
    bool counts(SteadyTime read_at, const Clock& now) const {
        if (confirmed_.load() >= read_at) return true;
        // The clock after the beat: a standstill in between is one that the beat does not know of.
        const SteadyTime beat = beat_.load();
        const SteadyTime time = now();
        return time - beat < kStandstill && !wants_round(time);
    }

  private:
    // Two threads may raise it.
    static void raise(std::atomic<SteadyTime>& latest, SteadyTime time) {
        SteadyTime known = latest.load();
        while (known < time && !latest.compare_exchange_weak(known, time)) {
        }
    }

    std::atomic<SteadyTime> beat_{};
    std::atomic<SteadyTime> stood_still_until_{};  // The end of the last standstill.
    std::atomic<SteadyTime> looked_{};
    std::atomic<SteadyTime> confirmed_{};  // When the last round was asked that ended well.
};

}  // namespace hotcount::redis
