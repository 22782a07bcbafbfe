// Who works on a connection that callers share: the decisions alone, without I/O, threads or a lock.
//
//   awake caller --next()--> write, read or sleep        role given up --successor()--> who is woken
//
// Two roles, each held by at most one caller. The writer sends and never waits for the socket: what
// the kernel does not take it leaves behind ("blocked"). The reader is the only one that waits for
// the socket. No wakeup is lost, because:
//  1. Any awake caller can take any free role that has work; its own call may stand anywhere. So
//     whoever is woken can do what it was woken for.
//  2. A caller asks next() before it sleeps, and asks successor() when it gives a role up for good
//     or leaves. successor() wakes one particular caller and takes it for awake from then on.
//  3. The reader begins to wait for the socket only while nobody writes, so it knows everything
//     that there is to wait for: replies, and room for more bytes where the writer was blocked.
//     Where a writer is blocked after that, the reader waits for the reply to commands that have
//     left as a whole, and looks again when it comes.
//
// The lane's lock guards all of it. tests/cpp/redis/connection_roles_test.cpp draws schedules against it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/detail/base/event.hpp>
#include <memory>
#include <utility>

namespace hotcount::redis {

/// A caller that sleeps, in the list that says so; awake, it is in none.
class Sleeper {
  public:
    Sleeper() = default;
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    ~Sleeper() { awake(); }

    /// It woke by itself, or its call has ended: nobody has to wake it.
    void awake() {
        before_->after_ = after_;
        after_->before_ = before_;
        before_ = after_ = this;
    }
    bool asleep() const { return after_ != this; }

    /// What it sleeps on, with those who came when it did, and its place among them.
    void join(std::shared_ptr<Signal> wave, unsigned place) {
        wave_ = std::move(wave);
        place_ = Signal::place(place);
    }
    Signal& wave() const { return *wave_; }
    std::uint32_t place() const { return place_; }

  private:
    friend class LaneRoles;

    void go_behind(Sleeper& last) {
        awake();
        before_ = &last;
        after_ = last.after_;
        after_->before_ = this;
        last.after_ = this;
    }

    Sleeper* before_{this};
    Sleeper* after_{this};
    std::shared_ptr<Signal> wave_;
    std::uint32_t place_{0};
};

class LaneRoles {
  public:
    /// What the connection has to do.
    struct Work {
        bool to_send;           ///< Bytes that the limits allow to be sent.
        bool half_sent;         ///< Encoded bytes are among them.
        std::size_t in_flight;  ///< Commands that are not answered.
    };

    /// While so many commands are under way newcomers leave sending to the reader: replies stream
    /// in, and it sends what has gathered with each of them. Fewer, larger sends.
    static constexpr std::size_t kEagerFlights = 4;

    enum class Next : std::uint8_t { write, read, sleep };
    /// What a caller does that is awake and holds no role.
    Next next(const Work& work) const {
        const bool reader_sends = reading_ && !work.half_sent && work.in_flight >= kEagerFlights;
        if (may_send(work) && !reader_sends) return Next::write;
        if (!reading_ && !writing_ && has_to_read(work)) return Next::read;
        return Next::sleep;
    }

    /// Whether there is something to write and the role is free: for the reader.
    bool may_send(const Work& work) const { return !writing_ && !blocked_ && work.to_send; }
    /// Whether something is to be waited for at the socket.
    bool has_to_read(const Work& work) const { return work.in_flight > 0 || blocked_; }
    /// Whether the reader may begin to wait for the socket. Otherwise it gives its role up or
    /// writes first.
    bool may_wait_for_socket(const Work& work) const {
        return !writing_ && !(work.half_sent && may_send(work));
    }

    void begin_writing() { writing_ = true; }
    void end_writing() { writing_ = false; }
    void begin_reading() { reading_ = true; }
    void end_reading() { reading_ = false; }
    bool reading() const { return reading_; }

    /// The socket takes no more bytes now: the reader waits for it to do so as well.
    bool blocked() const { return blocked_; }
    void set_blocked(bool blocked) { blocked_ = blocked; }

    void sleep(Sleeper& sleeper) { sleeper.go_behind(*asleep_.before_); }
    /// Whom to wake, because there is work that nobody awake has; null where nobody has to be.
    Sleeper* successor(const Work& work) {
        if (called_.asleep() || !asleep_.asleep() || next(work) == Next::sleep) return nullptr;
        Sleeper* const first = asleep_.after_;
        first->go_behind(called_);
        return first;
    }

  private:
    bool writing_{false};
    bool reading_{false};
    bool blocked_{false};
    Sleeper asleep_;  // The head of those that sleep, in the order in which they went.
    Sleeper called_;  // The head of the one that is being woken and has not run yet.
};

}  // namespace hotcount::redis
