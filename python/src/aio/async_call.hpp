// How a call of the core that does not wait becomes a Pending.
//
//   return start_call<std::int64_t>(side, owner, timeout,
//                                   [&](auto done, AsyncCall call) { counter->get_async(..., call); },
//                                   [](std::int64_t value) { return py::int_(value); });
//
// `elsewhere`: it may end in another thread, although its loop has a connection.
//
// The call is under way when this returns. What is wrong with its arguments is raised at once;
// everything else is the Pending's outcome.
#pragma once

#include <hotcount/detail/redis/channel.hpp>
#include <memory>
#include <new>
#include <utility>

#include "call_state.hpp"
#include "loop_adapter.hpp"
#include "pending.hpp"
#include "values/errors.hpp"
#include "values/pybind.hpp"

namespace hotcount::python {

/// The error of a call whose arguments, or whose store, cannot do: nothing was begun.
constexpr bool is_refusal(ErrorCode code) {
    return code == ErrorCode::config || code == ErrorCode::closed;
}

/// An error, with what `convert` adds to it, if it is an Answer.
template <class Convert>
Error told(const Convert& convert, Error error) {
    if constexpr (requires { convert.told(error); }) {
        return convert.told(std::move(error));
    } else {
        return error;
    }
}

/// Ends a Pending with a result. Does not throw: `convert` may, and that is the outcome then.
template <class T, class Convert>
void settle(Pending& pending, Result<T> result, const Convert& convert) {
    try {
        if (result.ok()) {
            if constexpr (std::is_void_v<T>) {
                pending.set_value(convert());
            } else {
                pending.set_value(convert(std::move(result).value()));
            }
        } else {
            pending.set_error(to_exception(told(convert, std::move(result).error())));
        }
    } catch (py::error_already_set& error) {
        pending.set_error(error.value());
    } catch (const std::exception& error) {
        pending.set_error(py::handle(PyExc_RuntimeError)(error.what()));
    }
}

namespace detail {

/// The call that this thread is starting right now.
inline thread_local const Ticket* starting = nullptr;

/// What the core hands a call's result to.
template <class T, class Convert>
class Settler {
  public:
    Settler(LoopSide& side, TicketReference ticket, bool* refused, Convert convert, bool elsewhere)
        : side_(&side),
          mailbox_(side.threaded() || elsewhere ? side.mailbox() : nullptr),
          in_connection_(!side.threaded()),
          ticket_(std::move(ticket)),
          refused_(refused),
          convert_(std::move(convert)) {}

    void operator()(Result<T> result) const {
        if (ticket_.get() == starting) {
            *refused_ = !result.ok() && is_refusal(result.error().code);
        } else if (mailbox_ != nullptr && !(in_connection_ && Departures::in_this_thread())) {
            // A thread of the library, without the GIL. The loop runs this as it is a letter.
            mailbox_->post([ticket = ticket_, convert = convert_, owner = ticket_->take_owner(),
                            kept = std::make_shared<Result<T>>(std::move(result))](LoopSide* side) {
                if (side != nullptr) {
                    finish(*side, ticket, std::move(*kept), convert);
                } else {
                    (void)ticket->take();  // The loop is gone, and who waited with it.
                }
            });
            return;
        }
        finish(*side_, ticket_, std::move(result), convert_);
    }

  private:
    static void finish(LoopSide& side, const TicketReference& ticket, Result<T> result,
                       const Convert& convert) {
        py::object pending = ticket->take();
        if (!pending) return;  // Cancelled.
        settle(*Pending::of(pending), std::move(result), convert);
        side.ended(std::move(pending));
    }

    LoopSide* side_;  // It outlives its connection.
    std::shared_ptr<Mailbox> mailbox_;
    bool
        in_connection_;  // It may also end inside a function of the connection, in the loop's thread.
    TicketReference ticket_;
    bool* refused_;  // On the stack of start_call(): for its time alone.
    Convert convert_;
};

}  // namespace detail

template <class T, class Start, class Convert>
py::object start_call(const std::shared_ptr<LoopSide>& side, Owner owner, Timeout timeout,
                      Start&& start, Convert convert, bool elsewhere = false) {
    py::object pending = Pending::make(side->loop());
    const TicketReference ticket(
        Ticket::make(Pending::of(pending), std::move(owner), side->departures()));
    // Making objects runs the collector, which may have ended the store.
    if (!side->usable()) {
        ticket->take();
        raise(make_error(ErrorCode::closed, "the store is closed"));
    }
    bool refused = false;
    side->start([&] {
        const auto* const outer = std::exchange(detail::starting, ticket.get());
        start(
            Completion<T>(detail::Settler<T, Convert>(*side, ticket, &refused, convert, elsewhere)),
            AsyncCall{side->channel(), timeout, ticket->cancelled()});
        detail::starting = outer;
    });
    if (refused) {
        const py::object exception = Pending::of(pending)->take_error();
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
        throw py::error_already_set();
    }
    return pending;
}

/// The same for a store that has answered already.
template <class T, class Convert>
py::object settled_call(const py::object& loop, Result<T> result, const Convert& convert) {
    if (!result.ok() && is_refusal(result.error().code)) raise(told(convert, result.error()));
    py::object pending = Pending::make(loop);
    settle(*Pending::of(pending), std::move(result), convert);
    return pending;
}

}  // namespace hotcount::python
