// Ctrl-C while a call waits: the program that embeds the core can end a wait before its deadline.
//
// The waiting thread calls a hook, which the program sets once. It is called after a signal, and at
// least every kInterruptSlice. When the hook returns true, every Deadline of this thread counts as
// passed until clear_interrupt(), so an interrupted call ends exactly as one whose deadline passed.
// A call under a Deadline at SteadyTime::max() has no deadline and is not interrupted.
//
// Only the process's first thread calls the hook, because Python runs signal handlers there. Other
// threads never wake for it, except those of HelperThreads.
#pragma once

#include <condition_variable>
#include <hotcount/clock.hpp>
#include <mutex>

namespace hotcount {

/// Returns true if the calling thread should stop waiting. The hook may take locks and run for a
/// while. Only waits that hold no lock of the core and no database connection call it: a fork waits
/// for both while it holds Python's GIL, which the hook needs.
using InterruptHook = bool (*)();
/// Thread-safe; nullptr removes the hook.
void set_interrupt_hook(InterruptHook hook);

/// The longest time for which a signal that came just before a wait may go unnoticed.
inline constexpr Duration kInterruptSlice = std::chrono::milliseconds{100};

/// True if the hook has returned true in this thread since clear_interrupt(). Costs one load.
bool interrupted();
/// For the program that set the hook, after the call: this thread's deadlines count again.
void clear_interrupt();

/// Calls the hook if this is the process's first thread. If the hook returns true, interrupted()
/// returns true from then on.
bool check_interrupt();
/// The time at which a wait must pause for check_interrupt(); the deadline itself in other threads.
SteadyTime next_check(Deadline deadline);

/// For a loop that does not wait, such as one over a stream of bytes. When due() returns true, the
/// loop calls check_interrupt() and checks the deadline. due() costs a read of the clock.
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

/// Sleeps, or returns early if the thread is interrupted.
void sleep_or_interrupt(Duration duration);

/// As std::condition_variable::wait_until; false at the deadline or if interrupted.
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
