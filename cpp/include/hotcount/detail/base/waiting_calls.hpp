// Calls that can only be made by waiting for them, made by threads of the library.
//
//   run() --> queue --> at most `threads` of them at a time, in order: work()
//                `----> a deadline error if no thread was free by then: the call was not begun
//
// So such a call blocks neither its caller nor a thread for each call. Thread-safe. A forked child has
// none of the threads: owners keep this in a ForkLocal. The calls outlive this object: they are made
// all the same, and hold what they need.
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
    /// `name`: what errors call the server that the calls go to. When `max_waiting` calls are queued,
    /// one more is a capacity error.
    WaitingCalls(std::string name, std::size_t threads, std::size_t max_waiting);
    WaitingCalls(const WaitingCalls&) = delete;
    WaitingCalls& operator=(const WaitingCalls&) = delete;
    ~WaitingCalls();

    /// `work` must return by the deadline, and must not throw. A thread of the library calls `done`;
    /// if the call cannot begin, `done` is called before run() returns. If *cancelled is true before
    /// the call's turn, the call is dropped; `cancelled` must live until then.
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
