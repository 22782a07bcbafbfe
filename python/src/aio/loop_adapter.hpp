// Joins a Redis client, or a database, to the event loops that use it.
//
//   LoopBindings (of one client) --> LoopBinding (of one loop) --> redis::LoopConnection
//                                        ^ watch, flush_soon, tick_in: add_reader, call_soon ...
//   LoopBindings (of one database) --> LoopBinding (of one loop) <-- Mailbox <-- threads of the core
//
// A LoopBinding comes to be when its loop first makes a call, and ends with the store, or with the
// loop: when that is collected, or found closed as another loop's binding is made. It holds its
// loop weakly. A loop without add_reader (a proactor loop) has none: its calls go over the shared
// connection (Client::without_waiting()). The completions of those, and of all calls of a database,
// come from other threads; they are queued in the mailbox, and the loop is woken once for all that
// come before it has looked: for a group of votes that were committed together, once.
//
// One turn of the reader: all replies are parsed and their calls ended; then the tasks that waited
// are resumed (Pending::step); then what these tasks called is sent. At most kMaxSteps are resumed
// in place; the loop resumes the others after its other work.
//
// All of it needs the GIL and, except LoopBindings::end() and post(), the loop's own thread.
#pragma once

#include <cstdint>
#include <functional>
#include <hotcount/redis.hpp>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "call_state.hpp"
#include "values/pybind.hpp"

namespace hotcount::python {

namespace py = pybind11;

class LoopBinding;
class LoopBindings;

/// Where other threads leave what is to be done in the loop's thread. Outlives its LoopBinding.
class Mailbox : public std::enable_shared_from_this<Mailbox> {
  public:
    /// Called with the GIL; with null if nobody reads letters any more.
    using Letter = std::function<void(LoopBinding*)>;

    explicit Mailbox(LoopBinding* binding);
    /// In any thread, with or without the GIL.
    void post(Letter letter);
    /// With the GIL: runs at most `most` of the letters. Returns whether some are left. In a forked
    /// child the letters stay: a thread of the parent may have had the lock.
    bool open(std::size_t most = std::numeric_limits<std::size_t>::max());
    /// Ends reading, with the GIL, and drops the letters now: a thread of the library may be the
    /// last holder of the mailbox, and destroying a letter needs the GIL.
    void retire() {
        binding_ = nullptr;
        open();
    }
    /// The loop could not be woken: the next letter wakes it.
    void wake_next_time();

  private:
    void wake();

    const std::uint64_t fork_generation_;
    std::mutex mutex_;
    std::vector<Letter> letters_;
    bool woken_{false};      // The loop is to read the letters: whoever set this has woken it.
    std::size_t opened_{0};  // The first of them, moved away already.
    LoopBinding* binding_;   // Guarded by the GIL.
};

class LoopBinding final : public redis::LoopHost, public std::enable_shared_from_this<LoopBinding> {
  public:
    static constexpr std::size_t kMaxSteps = 1024;
    /// Replies that are polled for before the loop has its turn: at most about a millisecond.
    static constexpr int kMaxSpins = 16;
    static constexpr std::uint32_t kAtOnce = 32;

    static std::shared_ptr<LoopBinding> make(LoopBindings& all, const py::object& loop,
                                             std::shared_ptr<redis::Client> client);
    LoopBinding(const LoopBinding&) = delete;
    LoopBinding& operator=(const LoopBinding&) = delete;
    ~LoopBinding() override;

    py::handle loop() const { return loop_; }
    /// Whether calls may still be made: not ended, and not the parent's in a forked child.
    bool usable() const;
    bool loop_is_closed() const;
    /// The loop whose task this thread is resuming; null outside of such a step. asyncio's own
    /// answer costs a system call each time, because it checks whether the process has forked.
    static PyObject* stepping_loop() { return stepping_loop_; }

    /// Runs `start`, which hands a call to channel(); completions may be called meanwhile.
    template <class Start>
    void start(Start&& start) {
        const ConnectionScope scope(*this);
        start();
    }
    /// Null for a database.
    redis::Channel* channel() const;
    /// Whether completions come from other threads, and have to be posted.
    bool threaded() const { return loop_connection_ == nullptr; }
    const std::shared_ptr<Mailbox>& mailbox() const { return mailbox_; }
    const std::shared_ptr<DeferredReleases>& deferred_releases() const {
        return deferred_releases_;
    }

    /// Whether a call that was answered without a question must end in the loop's next turn: one of
    /// kAtOnce. Awaiting the others does not yield, and a task that makes nothing but such calls
    /// would keep the loop from everybody else, from the replies of the server too.
    bool owes_turn() { return ++answered_at_once_ % kAtOnce == 0; }

    /// A call has ended; its Pending (null if the call was cancelled) is done.
    void ended(py::object pending);
    /// Ends the connection and its calls, or has the loop do it if that runs in another thread.
    void end();

    void watch(int fd, Interest interest) override;
    void flush_soon() override;
    void tick_in(Duration delay) override;

  private:
    friend class LoopBindings;
    friend class Mailbox;
    struct Callbacks;

    // While a function of the connection is on the stack, the connection must not be destroyed:
    // whoever makes such a scope holds the binding.
    class ConnectionScope {
      public:
        explicit ConnectionScope(LoopBinding& binding) : binding_(binding) {
            binding_.deferred_releases_->enter();
        }
        ConnectionScope(const ConnectionScope&) = delete;
        ConnectionScope& operator=(const ConnectionScope&) = delete;
        ~ConnectionScope() {
            if (binding_.deferred_releases_->leave() && binding_.end_later_) binding_.end();
        }

      private:
        LoopBinding& binding_;
    };

    LoopBinding(LoopBindings& all, std::shared_ptr<redis::Client> client);
    void join(const py::object& loop);
    bool has_readers() const;
    void turn(const std::function<void()>& work);
    void take_turn(const std::function<void()>& work);
    int spin();
    void step_all();
    void flush();
    void open_mail();
    /// In a thread of Python, an interrupt that comes meanwhile is the Python error afterwards.
    void wake_from_elsewhere();
    void lose_mail();
    void shut();
    void cancel_timer();
    /// Null if the loop is gone.
    py::object hold_loop() const;
    /// Whether the loop, which may be null, runs in another thread.
    static bool runs_elsewhere(py::handle loop);
    void report(py::error_already_set& error) const;
    template <class Call>
    void ask_loop(Call&& call);

    static inline thread_local PyObject* stepping_loop_ = nullptr;

    // Before loop_connection_, which ends first. Null: a database.
    std::shared_ptr<redis::Client> client_;
    LoopBindings* all_;
    PyObject* loop_{nullptr};  // Not counted; null once it is gone.
    py::object loop_reference_;
    py::object context_;  // An empty one, so that no task's variables are held by our callbacks.
    // A weak reference: the timer holds its loop, and a strong one would keep a loop that is never
    // closed from being collected. Null if no timer runs.
    py::object timer_;
    SteadyTime timer_due_{};
    std::uint64_t fork_generation_;
    std::unique_ptr<redis::LoopConnection> loop_connection_;
    std::map<int, Interest> watched_;
    std::vector<py::object> ready_;
    std::shared_ptr<Mailbox> mailbox_;
    std::shared_ptr<DeferredReleases> deferred_releases_;
    std::shared_ptr<LoopBinding>
        until_answered_;  // Itself, where an ended one has calls under way.
    // Where the loop shows whether it has something to do: its queue, and the descriptor that it
    // polls. Null and -1 if it does not show that.
    py::object ready_queue_;
    int poll_descriptor_{-1};
    std::uint32_t answered_at_once_{0};
    bool in_turn_{false};
    bool steps_{true};     // Tasks are resumed in place; not in a loop's debug mode.
    bool deaf_{false};     // The loop must not be asked for anything any more.
    bool refuses_{false};  // Asked to end.
    bool end_later_{false};
    bool ended_{false};
};

/// The loops that use one client.
class LoopBindings {
  public:
    LoopBindings() = default;
    LoopBindings(const LoopBindings&) = delete;
    LoopBindings& operator=(const LoopBindings&) = delete;
    ~LoopBindings() { end(); }

    /// The running loop's; made if the loop has none yet. RuntimeError if no loop runs. Null for a
    /// database.
    std::shared_ptr<LoopBinding> here(const std::shared_ptr<redis::Client>& client);
    /// Ends all of them. In any thread.
    void end();

  private:
    friend class LoopBinding;
    std::shared_ptr<LoopBinding> find(const py::object& loop,
                                      const std::shared_ptr<redis::Client>& client);
    void forget(LoopBinding& binding);

    std::unordered_map<PyObject*, std::shared_ptr<LoopBinding>> bindings_;
    std::shared_ptr<LoopBinding> last_;  // The one of the last call: most programs have one loop.
};

}  // namespace hotcount::python
