// Calls that wait, made by a few threads of the library for those who do not.
//
//   run() --> queue --> at most `threads` of them at a time, in order: work()
//                `----> a deadline error if none was free by then: nothing was begun
//
// So what can only be waited for holds up neither its caller nor the process with a thread each.
// Thread-safe. A forked child has none of the threads: owners keep this in a ForkLocal. Who lets go
// of it lets go of no call: what it was handed is still made, and holds what it needs.
#pragma once

#include <atomic>
#include <functional>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/completion.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <string>

namespace hotcount {

class WaitingCalls {
  public:
    /// `name`: where the calls go, for messages. With `max_waiting` calls in the queue one more is a
    /// capacity error.
    WaitingCalls(std::string name, std::size_t threads, std::size_t max_waiting);
    WaitingCalls(const WaitingCalls&) = delete;
    WaitingCalls& operator=(const WaitingCalls&) = delete;
    ~WaitingCalls();

    /// `work` returns by the deadline, and must not throw. `done` is called by a thread of the
    /// library, or before this returns if nothing can be begun. If *cancelled is true before
    /// its turn, the call is dropped; `cancelled` must live until then.
    template <class T>
    void run(Deadline deadline, const std::atomic<bool>* cancelled, Completion<T> done,
             std::function<Result<T>()> work) {
        add({.work = [work = std::move(work), done] { done(work()); },
             .refuse = [done](Error error) { done(std::move(error)); },
             .deadline = deadline,
             .cancelled = cancelled});
    }

    /// The same for a call whose `work` reports its outcome by itself.
    void run(Deadline deadline, std::function<void()> work, std::function<void(Error)> refuse);

  private:
    struct Call {
        std::function<void()> work{};
        std::function<void(Error)> refuse{};
        Deadline deadline{Deadline::at(SteadyTime::max())};
        const std::atomic<bool>* cancelled{nullptr};
    };
    struct State;
    void add(Call call);

    std::shared_ptr<State> state_;
};

}  // namespace hotcount
