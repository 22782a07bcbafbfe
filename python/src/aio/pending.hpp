// Pending: the awaitable that a call of hotcount.aio returns.
//
//   call --> Pending --(loop turns)--> await gives the value, or raises
//
// It is future and coroutine in one, so that await, gather, wait_for, shield, create_task and
// TaskGroup take it as it is: a future by asyncio's duck type (_asyncio_future_blocking), a
// coroutine by collections.abc. The wrapper that an `async def` would put around a future costs
// more than the whole object.
//
// The loop calls its waiters (call_soon), as with asyncio's futures. The exception
// is the frequent case: a single waiter that is a task of asyncio's own C class. step() resumes
// that task in place, which saves a handle and a turn of the loop for each call.
//
// For the loop's thread, with the GIL.
#pragma once

#include "values/pybind.hpp"

namespace hotcount::python {

namespace py = pybind11;

class CallState;

enum class PendingState : std::uint8_t { waiting, value, error, cancelled };

struct Pending {
    PyObject ob_base;  // What PyObject_HEAD stands for.
    PyObject* loop;
    PyObject* outcome;   // The value, the exception, or the message of cancel(). May be null.
    PyObject* callback;  // The first that waits, with its context.
    PyObject* context;
    PyObject* others;  // A list of (callback, context), or null.
    PyObject* weak_references;
    CallState* call_state;  // Counted; null once the call has ended.
    PendingState state;
    bool blocking;      // asyncio's _asyncio_future_blocking.
    bool unseen_error;  // Nobody has asked for the exception yet.

    /// New, and waiting. `call_state` is to be set by whoever starts the call.
    static py::object make(py::handle loop);
    /// New, and done.
    static py::object make_done(py::handle loop, py::object value);
    static Pending* of(py::handle object) { return reinterpret_cast<Pending*>(object.ptr()); }
    PyObject* as_object() { return &ob_base; }

    bool done() const { return state != PendingState::waiting; }
    /// Ends it. The caller then wakes those who wait: by step() or call_waiters().
    void set_value(py::object value);
    void set_error(py::object exception);
    void set_cancelled(py::object message);
    /// The exception of a call that raises at once. asyncio then logs no "never retrieved" for it.
    py::object take_error();

    /// Resumes the task that waits, if nobody else waits and it may be resumed from here: in the
    /// loop's own callback, outside of any task. False: nothing was done. Raises what the step
    /// raised; the callback is used up then.
    bool step();
    /// Has the loop call all that wait. Never raises: a closed loop calls nobody any more.
    void call_waiters();
};

/// Makes the type, and the module's hidden name for it.
void bind_pending(const py::object& module);

/// loop.call_soon(callback, argument, context=context); throws if the loop refuses.
void call_soon(py::handle loop, py::handle callback, py::handle argument, py::handle context);

/// The names of asyncio that the extension uses, looked up when the first awaitable call is made:
/// importing hotcount does not import asyncio. Kept for ever: pointers into it stay good while the
/// interpreter shuts down.
struct AsyncioNames {
    PyObject* get_running_loop;
    PyObject* running_loop_or_none;
    PyObject* current_task;
    PyObject* cancelled_error;
    PyObject* invalid_state_error;
    PyObject* task_type;  // asyncio's own in C; null if there is none.
};

const AsyncioNames& asyncio_names();

/// The loop that runs in this thread; RuntimeError if none does, in asyncio's words.
inline py::object running_loop() {
    auto loop =
        py::reinterpret_steal<py::object>(PyObject_CallNoArgs(asyncio_names().get_running_loop));
    if (!loop) throw py::error_already_set();
    return loop;
}

}  // namespace hotcount::python
