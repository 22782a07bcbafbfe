// How a call of the core that does not wait becomes a Pending.
//
//   return start_call<std::int64_t>(binding, owner, timeout,
//                                   [&](auto done, AsyncCall call) { counter->get_async(..., call); },
//                                   [](std::int64_t value) { return py::int_(value); });
//
// `elsewhere`: the call may end in a thread of the library even if the loop has a connection of its own.
//
// The call is under way when start_call() returns. A config or closed error is raised at once; every
// other outcome is the Pending's.
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

/// Whether this is the error of a call that was not begun: its arguments are bad or its store is closed.
constexpr bool is_refusal(ErrorCode code) {
    return code == ErrorCode::config || code == ErrorCode::closed;
}

/// The error after convert.failed(), which may add facts, if `convert` has such a function.
template <class Convert>
Error failed(const Convert& convert, Error error) {
    if constexpr (requires { convert.failed(error); }) {
        return convert.failed(std::move(error));
    } else {
        return error;
    }
}

/// Ends a Pending with a result. If `convert` throws, its exception is the Pending's outcome.
template <class T, class Convert>
void settle(Pending& pending, Result<T> result, const Convert& convert) {
    try {
        if (result.ok()) {
            if constexpr (requires { convert.answered(); }) convert.answered();
            if constexpr (std::is_void_v<T>) {
                pending.set_value(convert());
            } else {
                pending.set_value(convert(std::move(result).value()));
            }
        } else {
            pending.set_error(to_exception(failed(convert, std::move(result).error())));
        }
    } catch (py::error_already_set& error) {
        pending.set_error(error.value());
    } catch (const std::exception& error) {
        pending.set_error(py::handle(PyExc_RuntimeError)(error.what()));
    }
}

namespace detail {

/// The call that this thread is starting right now.
inline thread_local const CallState* starting = nullptr;

/// The completion that the core calls with a call's result.
template <class T, class Convert>
class Completer {
  public:
    Completer(LoopBinding& binding, CallReference call_state, bool* refused, Convert convert,
              bool elsewhere)
        : binding_(&binding),
          mailbox_(binding.threaded() || elsewhere ? binding.mailbox() : nullptr),
          in_connection_(!binding.threaded()),
          call_state_(std::move(call_state)),
          refused_(refused),
          convert_(std::move(convert)) {}

    void operator()(Result<T> result) const {
        Mailbox* later = nullptr;
        if (call_state_.get() == starting) {
            *refused_ = !result.ok() && is_refusal(result.error().code);
            if (!*refused_ && binding_->owes_turn()) later = binding_->mailbox().get();
        } else if (!(in_connection_ && DeferredReleases::in_this_thread())) {
            // A thread of the library, without the GIL.
            later = mailbox_.get();
        }
        if (later == nullptr) return finish(*binding_, call_state_, std::move(result), convert_);
        // The loop runs this later.
        later->post([call_state = call_state_, convert = convert_,
                     owner = call_state_->take_owner(),
                     kept = std::make_shared<Result<T>>(std::move(result))](LoopBinding* binding) {
            if (binding != nullptr) {
                finish(*binding, call_state, std::move(*kept), convert);
            } else {
                (void)call_state->take();  // The loop is closed: no task waits for the result.
            }
        });
    }

  private:
    static void finish(LoopBinding& binding, const CallReference& call_state, Result<T> result,
                       const Convert& convert) {
        py::object pending = call_state->take();
        if (!pending) return;  // Cancelled.
        settle(*Pending::of(pending), std::move(result), convert);
        binding.ended(std::move(pending));
    }

    LoopBinding* binding_;  // It outlives its connection.
    std::shared_ptr<Mailbox> mailbox_;
    // The loop has a connection, so the call may also end in the loop's thread, inside a function of
    // that connection.
    bool in_connection_;
    CallReference call_state_;
    bool* refused_;  // On the stack of start_call(), and used only until that returns.
    Convert convert_;
};

}  // namespace detail

template <class T, class Start, class Convert>
py::object start_call(const std::shared_ptr<LoopBinding>& binding, Owner owner, Timeout timeout,
                      Start&& start, Convert convert, bool elsewhere = false) {
    py::object pending = Pending::make(binding->loop());
    const CallReference call_state(
        CallState::make(Pending::of(pending), std::move(owner), binding->deferred_releases()));
    // Making objects may run the garbage collector, which may have ended the store.
    if (!binding->usable()) {
        call_state->take();
        raise(make_error(ErrorCode::closed, "the store is closed"));
    }
    bool refused = false;
    binding->start([&] {
        const auto* const outer = std::exchange(detail::starting, call_state.get());
        start(Completion<T>(detail::Completer<T, Convert>(*binding, call_state, &refused, convert,
                                                          elsewhere)),
              AsyncCall{binding->channel(), timeout, call_state->cancelled()});
        detail::starting = outer;
    });
    if (refused) {
        const py::object exception = Pending::of(pending)->take_error();
        PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
        throw py::error_already_set();
    }
    return pending;
}

/// As start_call(), for a result that is known at once.
template <class T, class Convert>
py::object settled_call(const py::object& loop, Result<T> result, const Convert& convert) {
    if (!result.ok() && is_refusal(result.error().code)) raise(failed(convert, result.error()));
    py::object pending = Pending::make(loop);
    settle(*Pending::of(pending), std::move(result), convert);
    return pending;
}

}  // namespace hotcount::python
