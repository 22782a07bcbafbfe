// What a call under way and its Pending know of each other.
//
//   completion (in the core) --> Ticket <--> Pending (in Python)
//
// The call ends by its outcome or by cancel(), whichever comes first; both take the Pending from
// the ticket, so the other finds nothing. The core may drop a cancelled call's completion any time
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

/// What a call keeps until its end, such as its counter and store. Its end needs the GIL.
using Owner = std::shared_ptr<const void>;

/// Drops an owner where Python may be called next; in a thread that may not have the GIL, and that
/// may be one of those that end with the owner's store.
void drop_in_python(Owner owner);

/// Owners that must wait while a function of a loop's connection is on the stack: with the last one the
/// store goes, and the connection with it. With the GIL.
class Departures {
  public:
    void drop(Owner owner) {
        if (depth_ > 0) waiting_.push_back(std::move(owner));
    }
    void enter() {
        ++depth_;
        ++depth_here_;
    }
    /// True where nothing of the connection is on the stack any more.
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

class Ticket {
  public:
    static Ticket* make(Pending* pending, Owner owner, std::shared_ptr<Departures> departures) {
        Py_INCREF(pending->as_object());
        auto* const ticket = new Ticket(pending, std::move(owner), std::move(departures));
        ticket->add_reference();  // The Pending's.
        pending->ticket = ticket;
        return ticket;
    }

    /// Ends the call, with the GIL. The Pending, or null where it was ended before.
    py::object take() {
        py::object taken = py::reinterpret_steal<py::object>(reinterpret_cast<PyObject*>(pending_));
        if (pending_ != nullptr) {
            pending_->ticket = nullptr;
            pending_ = nullptr;
            drop_reference();
        }
        return taken;
    }
    /// The same, and withdraws the call where it is not sent yet.
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
    Ticket(Pending* pending, Owner owner, std::shared_ptr<Departures> departures)
        : pending_(pending), owner_(std::move(owner)), departures_(std::move(departures)) {}
    ~Ticket() {
        if (owner_ == nullptr) return;
        if (WithGil::in_python()) {
            departures_->drop(std::move(owner_));
        } else {
            drop_in_python(std::move(owner_));
        }
    }

    std::atomic<int> references_{1};
    redis::Cancelled cancelled_{false};
    Pending* pending_;  // A reference, until the call has ended.
    Owner owner_;
    std::shared_ptr<Departures> departures_;
};

/// A counted reference: what completions hold.
class TicketReference {
  public:
    explicit TicketReference(Ticket* made) : ticket_(made) {}
    TicketReference(const TicketReference& other) : ticket_(other.ticket_) {
        if (ticket_ != nullptr) ticket_->add_reference();
    }
    TicketReference(TicketReference&& other) noexcept
        : ticket_(std::exchange(other.ticket_, nullptr)) {}
    TicketReference& operator=(const TicketReference&) = delete;
    TicketReference& operator=(TicketReference&&) = delete;
    ~TicketReference() {
        if (ticket_ != nullptr) ticket_->drop_reference();
    }
    Ticket* get() const { return ticket_; }
    Ticket* operator->() const { return ticket_; }

  private:
    Ticket* ticket_;
};

}  // namespace hotcount::python
