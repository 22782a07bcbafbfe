// Ctrl-C while a call waits: what embeds the core may end a wait before its deadline.
//
// A hook, set once for the process, is asked in the thread that waits: when a signal woke it, and
// otherwise every kInterruptSlice. Where it says yes, every Deadline of this thread counts as passed
// until clear_interrupt(): so a call that is interrupted ends as one whose deadline passed does, and
// leaves nothing behind that such a call does not. A Deadline at SteadyTime::max() is none, and what
// runs under it is not interrupted.
//
// Only the process's first thread asks, because that is where Python runs signal handlers. Others
// never wake for it. Without a hook nobody does.
#pragma once

#include <condition_variable>
#include <hotcount/clock.hpp>
#include <mutex>

namespace hotcount {

/// True where the calling thread shall stop waiting. It may take locks and run for a while, so it is
/// asked by waits that hold no lock of the core and no database connection: a fork waits for both,
/// with Python's GIL held, which the hook wants.
using InterruptHook = bool (*)();
/// Thread-safe; nullptr takes it away.
void set_interrupt_hook(InterruptHook hook);

/// How long a signal that came just before the wait may go unnoticed.
inline constexpr Duration kInterruptSlice = std::chrono::milliseconds{100};

/// Whether this thread's hook has said yes since clear_interrupt(). Costs a load.
bool interrupted();
/// For whoever set the hook, after the call: this thread's deadlines are what they were.
void clear_interrupt();

/// Asks the hook, in the thread that it concerns: interrupted() from then on.
bool check_interrupt();
/// When a wait must end to check_interrupt(): the deadline itself in threads that do not ask.
SteadyTime next_check(Deadline deadline);

/// For a loop that goes on without a wait, such as one over bytes that keep coming: tells when it is
/// time to check_interrupt() and to look at the deadline. Costs a look at the clock.
class Pace {
  public:
    explicit Pace(Deadline deadline) : deadline_(deadline), next_(next_check(deadline)) {}
    bool due() {
        if (std::chrono::steady_clock::now() < next_) return false;
        next_ = next_check(deadline_);
        return true;
    }

  private:
    Deadline deadline_;
    SteadyTime next_;
};

/// Sleeps, or returns early where the thread is interrupted.
void sleep_or_interrupt(Duration duration);

/// As std::condition_variable::wait_until; false at the deadline and where interrupted.
template <class Predicate>
bool wait_or_interrupt(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                       Deadline deadline, Predicate predicate) {
    while (!predicate()) {
        if (changed.wait_until(lock, next_check(deadline), predicate)) return true;
        lock.unlock();
        check_interrupt();
        lock.lock();
        if (deadline.passed()) return predicate();
    }
    return true;
}

}  // namespace hotcount
