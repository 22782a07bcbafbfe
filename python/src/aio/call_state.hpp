// The link between a call under way and its Pending.
//
//   completion (in the core) --> CallState <--> Pending (in Python)
//
// The call ends by its outcome or by cancel(), whichever comes first; both take the Pending from
// the call_state, so the other finds nothing. The core may drop a cancelled call's completion any time
// later and in any thread: only then is the flag that it reads gone.
#pragma once

#include <hotcount/detail/redis/channel.hpp>

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "pending.hpp"
#include "values/gil.hpp"
#include "values/pybind.hpp"

namespace hotcount::python {

/// The object that a call keeps alive until it ends, such as its counter and store. Its destructor needs
/// the GIL.
using Owner = std::shared_ptr<const void>;

/// Has Python drop an owner when it next makes pending calls: for a thread that may not have the
/// GIL, and that may be one of those that end with the owner's store.
void drop_in_python(Owner owner);

/// Owners that must wait while a function of a loop's connection is on the stack: the last owner
/// takes the store along, and the store the connection. With the GIL.
class DeferredReleases {
  public:
    void drop(Owner owner) {
        if (depth_ > 0) waiting_.push_back(std::move(owner));
    }
    void enter() {
        ++depth_;
        ++depth_here_;
    }
    /// True if nothing of the connection is on the stack any more.
    bool leave() {
        --depth_here_;
        if (--depth_ > 0) return false;
        while (!waiting_.empty()) {
            // A store's end may drop more.
            const std::vector<Owner> going = std::exchange(waiting_, {});
        }
        return true;
    }
    bool in_connection() const { return depth_ > 0; }
    /// Whether a function of any connection is on this thread's stack, which has the GIL then.
    static bool in_this_thread() { return depth_here_ > 0; }

  private:
    static inline thread_local int depth_here_ = 0;

    int depth_{0};
    std::vector<Owner> waiting_;
};

class CallState {
  public:
    static CallState* make(Pending* pending, Owner owner,
                           std::shared_ptr<DeferredReleases> deferred_releases) {
        Py_INCREF(pending->as_object());
        auto* const call_state =
            new CallState(pending, std::move(owner), std::move(deferred_releases));
        call_state->add_reference();  // The Pending's.
        pending->call_state = call_state;
        return call_state;
    }

    /// Ends the call, with the GIL. Returns the Pending, or null if it was ended before.
    py::object take() {
        py::object taken = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(pending_));
        if (pending_ != nullptr) {
            pending_->call_state = nullptr;
            pending_ = nullptr;
            drop_reference();
        }
        return taken;
    }
    /// take(); also withdraws the call if it is not sent yet.
    py::object cancel() {
        cancelled_ = true;
        return take();
    }
    const redis::Cancelled* cancelled() const { return &cancelled_; }
    /// For the one that calls the completion.
    Owner take_owner() { return std::move(owner_); }

    void add_reference() { references_.fetch_add(1, std::memory_order_relaxed); }
    void drop_reference() {
        if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
    }

  private:
    CallState(Pending* pending, Owner owner, std::shared_ptr<DeferredReleases> deferred_releases)
        : pending_(pending),
          owner_(std::move(owner)),
          deferred_releases_(std::move(deferred_releases)) {}
    ~CallState() {
        if (owner_ == nullptr) return;
        if (WithGil::in_python()) {
            deferred_releases_->drop(std::move(owner_));
        } else {
            drop_in_python(std::move(owner_));
        }
    }

    std::atomic<int> references_{1};
    redis::Cancelled cancelled_{false};
    Pending* pending_;  // A reference, until the call has ended.
    Owner owner_;
    std::shared_ptr<DeferredReleases> deferred_releases_;
};

/// A counted reference to a CallState, for completions.
class CallReference {
  public:
    explicit CallReference(CallState* made) : call_state_(made) {}
    CallReference(const CallReference& other) : call_state_(other.call_state_) {
        if (call_state_ != nullptr) call_state_->add_reference();
    }
    CallReference(CallReference&& other) noexcept
        : call_state_(std::exchange(other.call_state_, nullptr)) {}
    CallReference& operator=(const CallReference&) = delete;
    CallReference& operator=(CallReference&&) = delete;
    ~CallReference() {
        if (call_state_ != nullptr) call_state_->drop_reference();
    }
    CallState* get() const { return call_state_; }
    CallState* operator->() const { return call_state_; }

  private:
    CallState* call_state_;
};

}  // namespace hotcount::python
