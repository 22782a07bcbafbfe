// Decides which caller works on a connection that callers share. Decisions only: no I/O, no threads and
// no lock.
//
//   awake caller --next()--> write, read or sleep       role given up --successor()--> woken caller
//
// There are two roles, each held by at most one caller. The writer sends and never waits for the
// socket: it leaves the bytes that the kernel does not take ("blocked"). Only the reader waits for
// the socket. No wakeup is lost, because:
//  1. Any awake caller can take any free role that has work, wherever its own call is in the queue.
//     So a woken caller can do the work for which it was woken.
//  2. A caller asks next() before it sleeps, and successor() when it gives a role up for good or
//     leaves. successor() names one caller to wake and counts it as awake from then on.
//  3. The reader begins to wait for the socket only while no caller writes. So it knows all events
//     to wait for: replies, and room for more bytes if the writer was blocked. If a writer is
//     blocked after that, the reader waits for the reply to commands that were sent completely, and
//     then checks again.
//
// The connection's lock guards all of it. tests/cpp/redis/connection_roles_test.cpp checks it with
// random schedules.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/detail/base/event.hpp>
#include <memory>
#include <utility>

namespace hotcount::redis {

/// A caller that may sleep. It is in a list while it sleeps, and in none while it is awake.
class Sleeper {
  public:
    Sleeper() = default;
    Sleeper(const Sleeper&) = delete;
    Sleeper& operator=(const Sleeper&) = delete;
    ~Sleeper() { awake(); }

    /// Removes it from its list: it woke by itself, or its call has ended.
    void awake() {
        before_->after_ = after_;
        after_->before_ = before_;
        before_ = after_ = this;
    }
    bool asleep() const { return after_ != this; }

    /// The signal that it sleeps on, with callers whose commands leave together, and its place there.
    void join(std::shared_ptr<Signal> wave, unsigned place) {
        wave_ = std::move(wave);
        place_ = Signal::place(place);
    }
    Signal& wave() const { return *wave_; }
    std::shared_ptr<Signal> shared_wave() const { return wave_; }
    std::uint32_t place() const { return place_; }

  private:
    friend class ConnectionRoles;

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

class ConnectionRoles {
  public:
    /// The pending work of the connection.
    struct Work {
        bool to_send;      ///< Bytes that the limits allow to be sent.
        bool half_sent;    ///< Encoded bytes are among them.
        std::size_t load;  ///< Multiplexer::load(): 0 if no reply is due.
    };

    /// From this load on, new callers leave sending to the reader, which after each reply sends all
    /// commands queued since. That makes fewer, larger sends.
    static constexpr std::size_t kReaderSendsFrom = 4;

    enum class Next : std::uint8_t { write, read, sleep };
    /// The next step of a caller that is awake and holds no role.
    Next next(const Work& work) const {
        const bool reader_sends = reading_ && !work.half_sent && work.load >= kReaderSendsFrom;
        if (may_send(work) && !reader_sends) return Next::write;
        if (!reading_ && !writing_ && has_to_read(work)) return Next::read;
        return Next::sleep;
    }

    /// Whether there are bytes to send and no caller is the writer.
    bool may_send(const Work& work) const { return !writing_ && !blocked_ && work.to_send; }
    /// Whether there is anything to wait for at the socket.
    bool has_to_read(const Work& work) const { return work.load > 0 || blocked_; }
    /// Whether the reader may begin to wait for the socket. If not, it gives its role up or writes
    /// first.
    bool may_wait_for_socket(const Work& work) const {
        return !writing_ && !(work.half_sent && may_send(work));
    }

    void begin_writing() { writing_ = true; }
    void end_writing() { writing_ = false; }
    void begin_reading() { reading_ = true; }
    void end_reading() { reading_ = false; }
    bool reading() const { return reading_; }

    /// The socket takes no more bytes now: the reader also waits until it does.
    bool blocked() const { return blocked_; }
    void set_blocked(bool blocked) { blocked_ = blocked; }

    void sleep(Sleeper& sleeper) { sleeper.go_behind(*asleep_.before_); }
    /// The caller to wake, because there is work that no awake caller does; null if there is none.
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
    Sleeper asleep_;  // The head of the list of sleepers, in the order in which they went to sleep.
    Sleeper called_;  // The head of the list of the one that is being woken and has not run yet.
};

}  // namespace hotcount::redis
