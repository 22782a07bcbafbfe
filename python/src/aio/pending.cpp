// The end of a Pending, and its type as Python and asyncio see it.
#include "pending.hpp"

#include <structmember.h>

#include <cstddef>
#include <string_view>
#include <utility>

#include "call_state.hpp"
#include "values/errors.hpp"
#include "values/gil.hpp"

namespace hotcount::python {
namespace {

PyTypeObject* pending_type = nullptr;

py::object borrowed(PyObject* object) { return py::reinterpret_borrow<py::object>(object); }
py::object stolen(PyObject* object) { return py::reinterpret_steal<py::object>(object); }
py::object none() { return py::none(); }
// Throws the exception that a null from Python stands for.
py::object checked(PyObject* object) {
    if (object == nullptr) throw py::error_already_set();
    return stolen(object);
}

Pending* cast(PyObject* self) { return reinterpret_cast<Pending*>(self); }

// A task's own callback: a C function bound to a task of exactly asyncio's C class. Others, and
// other methods of a task that somebody passed, are left to the loop.
bool resumes_task(PyObject* callback) {
    if (!PyCFunction_CheckExact(callback) || PyCFunction_GET_FLAGS(callback) != METH_O) {
        return false;
    }
    PyObject* const self = PyCFunction_GET_SELF(callback);
    if (self == nullptr ||
        reinterpret_cast<PyObject*>(Py_TYPE(self)) != asyncio_names().task_type) {
        return false;
    }
    const char* const name = reinterpret_cast<PyCFunctionObject*>(callback)->m_ml->ml_name;
    return std::string_view{name} == "task_wakeup";
}

void set_outcome(Pending& self, PendingState state, py::object outcome) {
    self.state = state;
    Py_XSETREF(self.outcome, outcome.release().ptr());
}

}  // namespace

const AsyncioNames& asyncio_names() {
    return made_once<AsyncioNames>([] {
        const auto asyncio = import_module("asyncio");
        const auto kept = [&](const char* name) {
            return py::object(asyncio.attr(name)).release().ptr();
        };
        PyObject* task = kept("Task");
        // If the C class is missing, Task is one that is written in Python.
        const auto module = py::str(py::handle(task).attr("__module__"));
        if (!module.equal(py::str("_asyncio"))) Py_CLEAR(task);
        return AsyncioNames{kept("get_running_loop"),  kept("_get_running_loop"),
                            kept("current_task"),      kept("CancelledError"),
                            kept("InvalidStateError"), task};
    });
}

void call_soon(py::handle loop, py::handle callback, py::handle argument, py::handle context) {
    static PyObject* const name = PyUnicode_InternFromString("call_soon");
    static PyObject* const keywords = py::make_tuple("context").release().ptr();
    PyObject* values[] = {loop.ptr(), callback.ptr(), argument.ptr(), context.ptr()};
    if (!stolen(PyObject_VectorcallMethod(name, values, 3, keywords))) {
        throw py::error_already_set();
    }
}

py::object Pending::make_done(py::handle loop, py::object value) {
    py::object made = make(loop);
    of(made)->set_value(std::move(value));
    return made;
}

void Pending::set_value(py::object value) {
    set_outcome(*this, PendingState::value, std::move(value));
}

void Pending::set_error(py::object exception) {
    set_outcome(*this, PendingState::error, std::move(exception));
    unseen_error = true;
}

void Pending::set_cancelled(py::object message) {
    set_outcome(*this, PendingState::cancelled, std::move(message));
}

py::object Pending::take_error() {
    unseen_error = false;
    return borrowed(outcome);
}

bool Pending::step() {
    if (others != nullptr || callback == nullptr || !resumes_task(callback)) return false;
    if (PyContext_Enter(context) != 0) {
        // It is entered already, further up: not to be entered twice.
        PyErr_Clear();
        return false;
    }
    const py::object kept = borrowed(as_object());
    const py::object entered = stolen(std::exchange(context, nullptr));
    const py::object waiter = stolen(std::exchange(callback, nullptr));
    const py::object result = stolen(PyObject_CallOneArg(waiter.ptr(), kept.ptr()));
    if (!result) {
        py::error_already_set error;  // Fetched: leaving the context needs a clean slate.
        PyContext_Exit(entered.ptr());
        throw error;
    }
    if (PyContext_Exit(entered.ptr()) != 0) throw py::error_already_set();
    return true;
}

void Pending::call_waiters() {
    if (callback == nullptr) return;
    const py::object kept = borrowed(as_object());
    const py::object first = stolen(std::exchange(callback, nullptr));
    const py::object first_context = stolen(std::exchange(context, nullptr));
    const py::object more = stolen(std::exchange(others, nullptr));
    try {
        call_soon(loop, first, kept, first_context);
        if (!more) return;
        for (const py::handle pair : py::list(more)) {
            call_soon(loop, PyTuple_GET_ITEM(pair.ptr(), 0), kept, PyTuple_GET_ITEM(pair.ptr(), 1));
        }
    } catch (py::error_already_set&) {
        // The loop is closed: no waiter is left that could retrieve the error.
        unseen_error = false;
    }
}

namespace {

// -- those who wait --------------------------------------------------------------

void add_waiter(Pending* self, py::object callback, py::object context) {
    if (self->callback == nullptr) {
        self->callback = callback.release().ptr();
        self->context = context.release().ptr();
        return;
    }
    if (self->others == nullptr) self->others = checked(PyList_New(0)).release().ptr();
    if (PyList_Append(self->others, py::make_tuple(callback, context).ptr()) != 0) {
        throw py::error_already_set();
    }
}

void forget_waiters(Pending* self) {
    Py_CLEAR(self->callback);
    Py_CLEAR(self->context);
    Py_CLEAR(self->others);
}

// -- outcomes ---------------------------------------------------------------

py::object cancelled_error(const Pending* self) {
    const py::handle type = asyncio_names().cancelled_error;
    if (self->outcome == nullptr || self->outcome == Py_None) return type();
    return type(py::handle(self->outcome));
}

[[noreturn]] void raise_object(const py::object& exception) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    throw py::error_already_set();
}

[[noreturn]] void raise_invalid_state(const char* message) {
    raise_object(py::handle(asyncio_names().invalid_state_error)(message));
}

// The value, or what was raised instead of it.
py::object outcome_of(Pending* self) {
    switch (self->state) {
        case PendingState::value:
            return borrowed(self->outcome);
        case PendingState::error: {
            self->unseen_error = false;
            const py::object exception = borrowed(self->outcome);
            // Otherwise each raise would add its frames to those of the last.
            PyException_SetTraceback(exception.ptr(), Py_None);
            raise_object(exception);
        }
        case PendingState::cancelled:
            raise_object(cancelled_error(self));
        case PendingState::waiting:
            break;
    }
    raise_invalid_state("Result is not set.");
}

bool cancel(Pending* self, py::handle message) {
    self->unseen_error = false;
    if (self->done()) return false;
    if (self->call_state != nullptr) {
        // The call_state's reference to us, which is not the last: the caller has one.
        const py::object mine = self->call_state->cancel();
    }
    self->set_cancelled(borrowed(message ? message.ptr() : Py_None));
    self->call_waiters();
    return true;
}

// A coroutine that is ended before anybody waits for it.
void withdraw(Pending* self) {
    if (!self->done() && self->callback == nullptr) cancel(self, py::handle());
}

// -- being awaited ----------------------------------------------------------

// One step of `await`: null and no exception means that *result is what it came to.
py::object step_of_await(Pending* self, bool& finished) {
    finished = self->done();
    if (finished) return outcome_of(self);
    if (self->blocking) {
        PyErr_SetString(PyExc_RuntimeError, "await wasn't used with future");
        throw py::error_already_set();
    }
    self->blocking = true;
    return borrowed(self->as_object());
}

#if PY_VERSION_HEX >= 0x030A0000
PySendResult send_in_c(PyObject* self, PyObject*, PyObject** result) {
    bool finished = false;
    *result = guarded([&] { return step_of_await(cast(self), finished); });
    if (*result == nullptr) return PYGEN_ERROR;
    return finished ? PYGEN_RETURN : PYGEN_NEXT;
}
#endif

// send() for callers that do not use am_send: the end is a StopIteration.
PyObject* next_step(PyObject* self) {
    return guarded([&]() -> py::object {
        bool finished = false;
        py::object result = step_of_await(cast(self), finished);
        if (!finished) return result;
        // Made by hand: raised with a bare value, a tuple would become its arguments.
        raise_object(checked(PyObject_CallOneArg(PyExc_StopIteration, result.ptr())));
    });
}

PyObject* send(PyObject* self, PyObject*) { return next_step(self); }

PyObject* throw_into(PyObject* self, PyObject* const* values, Py_ssize_t count) {
    return guarded([&]() -> py::object {
        if (count < 1 || count > 3)
            raise_type("throw() takes an exception, or its class and value");
        const py::handle type = values[0];
        const py::handle value = count > 1 ? values[1] : Py_None;
        const py::handle traceback = count > 2 ? values[2] : Py_None;
        if (!traceback.is_none() && PyTraceBack_Check(traceback.ptr()) == 0) {
            raise_type("throw() third argument must be a traceback object");
        }
        py::object exception;
        if (PyExceptionInstance_Check(type.ptr())) {
            if (!value.is_none()) raise_type("instance exception may not have a separate value");
            exception = borrowed(type.ptr());
        } else if (PyExceptionClass_Check(type.ptr())) {
            if (PyExceptionInstance_Check(value.ptr())) {
                exception = borrowed(value.ptr());
            } else {
                exception = value.is_none() ? type() : type(value);
            }
        } else {
            raise_type("exceptions must be classes deriving BaseException or instances of one");
        }
        if (!traceback.is_none()) PyException_SetTraceback(exception.ptr(), traceback.ptr());
        withdraw(cast(self));
        raise_object(exception);
    });
}

PyObject* close(PyObject* self, PyObject*) {
    return guarded([&] {
        withdraw(cast(self));
        return none();
    });
}

PyObject* itself(PyObject* self) { return borrowed(self).release().ptr(); }

// -- being a future ---------------------------------------------------------

PyObject* get_result(PyObject* self, PyObject*) {
    return guarded([&] { return outcome_of(cast(self)); });
}

PyObject* get_exception(PyObject* self, PyObject*) {
    return guarded([&]() -> py::object {
        Pending* const pending = cast(self);
        if (pending->state == PendingState::waiting) raise_invalid_state("Exception is not set.");
        if (pending->state == PendingState::cancelled) raise_object(cancelled_error(pending));
        if (pending->state == PendingState::value) return none();
        pending->unseen_error = false;
        return borrowed(pending->outcome);
    });
}

PyObject* is_done(PyObject* self, PyObject*) {
    return py::bool_(cast(self)->done()).release().ptr();
}

PyObject* is_cancelled(PyObject* self, PyObject*) {
    return py::bool_(cast(self)->state == PendingState::cancelled).release().ptr();
}

PyObject* cancel_it(PyObject* self, PyObject* arguments, PyObject* keywords) {
    PyObject* message = Py_None;
    static const char* names[] = {"msg", nullptr};
    if (PyArg_ParseTupleAndKeywords(arguments, keywords, "|O:cancel", const_cast<char**>(names),
                                    &message) == 0) {
        return nullptr;
    }
    return guarded([&] { return py::bool_(cancel(cast(self), message)); });
}

PyObject* make_cancelled_error(PyObject* self, PyObject*) {
    return guarded([&] { return cancelled_error(cast(self)); });
}

PyObject* add_done_callback(PyObject* self, PyObject* const* values, Py_ssize_t positional,
                            PyObject* names) {
    return guarded([&] {
        const Py_ssize_t keywords = names == nullptr ? 0 : PyTuple_GET_SIZE(names);
        const bool context_only =
            keywords == 0 || (keywords == 1 && PyUnicode_CompareWithASCIIString(
                                                   PyTuple_GET_ITEM(names, 0), "context") == 0);
        if (positional != 1 || !context_only) {
            raise_type("add_done_callback() takes one callback, and context= by keyword");
        }
        Pending* const pending = cast(self);
        py::object context = borrowed(keywords == 1 ? values[1] : Py_None);
        if (context.is_none()) context = checked(PyContext_CopyCurrent());
        if (pending->done()) {
            call_soon(pending->loop, values[0], self, context);
        } else {
            add_waiter(pending, borrowed(values[0]), std::move(context));
        }
        return none();
    });
}

PyObject* remove_done_callback(PyObject* self, PyObject* callback) {
    return guarded([&]() -> py::object {
        Pending* const pending = cast(self);
        // Taken off first: comparing may run anybody's code.
        const py::object first = stolen(std::exchange(pending->callback, nullptr));
        const py::object first_context = stolen(std::exchange(pending->context, nullptr));
        const py::object others = stolen(std::exchange(pending->others, nullptr));
        std::size_t removed = 0;
        const auto keep_or_remove = [&](const py::object& each, const py::object& context) {
            if (each.equal(py::handle(callback))) {
                ++removed;
            } else {
                add_waiter(pending, each, context);
            }
        };
        if (first) keep_or_remove(first, first_context);
        if (others) {
            for (const py::handle pair : py::list(others)) {
                keep_or_remove(borrowed(PyTuple_GET_ITEM(pair.ptr(), 0)),
                               borrowed(PyTuple_GET_ITEM(pair.ptr(), 1)));
            }
        }
        return py::int_(removed);
    });
}

PyObject* get_loop(PyObject* self, PyObject*) {
    PyObject* const loop = cast(self)->loop;  // Null once the collector has been here.
    return borrowed(loop == nullptr ? Py_None : loop).release().ptr();
}
PyObject* loop_attribute(PyObject* self, void*) { return get_loop(self, nullptr); }

PyObject* get_blocking(PyObject* self, void*) {
    return py::bool_(cast(self)->blocking).release().ptr();
}

int set_blocking(PyObject* self, PyObject* value, void*) {
    const int truth = value == nullptr ? -1 : PyObject_IsTrue(value);
    if (truth < 0) {
        if (value == nullptr) PyErr_SetString(PyExc_AttributeError, "cannot delete attribute");
        return -1;
    }
    cast(self)->blocking = truth != 0;
    return 0;
}

// gather() makes the CancelledError of a child from this.
PyObject* get_cancel_message(PyObject* self, void*) {
    const Pending* const pending = cast(self);
    const bool has = pending->state == PendingState::cancelled && pending->outcome != nullptr;
    return borrowed(has ? pending->outcome : Py_None).release().ptr();
}

PyObject* get_log_traceback(PyObject* self, void*) {
    return py::bool_(cast(self)->unseen_error).release().ptr();
}

int set_log_traceback(PyObject* self, PyObject* value, void*) {
    const int truth = value == nullptr ? -1 : PyObject_IsTrue(value);
    if (truth != 0) {
        PyErr_SetString(PyExc_ValueError, "_log_traceback can only be set to False");
        return -1;
    }
    cast(self)->unseen_error = false;
    return 0;
}

PyObject* represent(PyObject* self) {
    return guarded([&] {
        const Pending* const pending = cast(self);
        std::string text = "<hotcount.aio call ";
        switch (pending->state) {
            case PendingState::waiting:
                text += "pending";
                break;
            case PendingState::value:
                text += "finished result=" + std::string(py::repr(pending->outcome));
                break;
            case PendingState::error:
                text += "finished exception=" + std::string(py::repr(pending->outcome));
                break;
            case PendingState::cancelled:
                text += "cancelled";
                break;
        }
        return py::str(text + ">");
    });
}

// -- life -------------------------------------------------------------------

int traverse(PyObject* self, visitproc visit, void* arg) {
    Pending* const pending = cast(self);
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(pending->loop);
    Py_VISIT(pending->outcome);
    Py_VISIT(pending->callback);
    Py_VISIT(pending->context);
    Py_VISIT(pending->others);
    return 0;
}

int clear(PyObject* self) {
    Pending* const pending = cast(self);
    Py_CLEAR(pending->loop);
    Py_CLEAR(pending->outcome);
    forget_waiters(pending);
    return 0;
}

// Reports an exception that nobody has asked for, as asyncio's futures do.
void complain(PyObject* self) {
    Pending* const pending = cast(self);
    if (!pending->unseen_error || pending->loop == nullptr) return;
    pending->unseen_error = false;
    PyObject* type = nullptr;
    PyObject* value = nullptr;
    PyObject* traceback = nullptr;
    PyErr_Fetch(&type, &value, &traceback);
    try {
        py::dict context;
        context["message"] = "the exception of a hotcount.aio call was never retrieved";
        context["exception"] = borrowed(pending->outcome);
        context["future"] = borrowed(self);
        borrowed(pending->loop).attr("call_exception_handler")(context);
    } catch (py::error_already_set& error) {
        error.restore();
        PyErr_WriteUnraisable(self);
    }
    PyErr_Restore(type, value, traceback);
}

void dealloc(PyObject* self) {
    Pending* const pending = cast(self);
    // The report may keep the object alive.
    if (pending->unseen_error && PyObject_CallFinalizerFromDealloc(self) < 0) return;
    PyTypeObject* const type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    if (pending->weak_references != nullptr) PyObject_ClearWeakRefs(self);
    clear(self);
    PyObject_GC_Del(self);
    Py_DECREF(type);
}

template <class Function>
PyCFunction as_method(Function* function) {
    return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {
    {"result", get_result, METH_NOARGS,
     "result(self) -> typing.Any\n\nThe value; raises what the call failed with."},
    {"exception", get_exception, METH_NOARGS,
     "exception(self) -> BaseException | None\n\nWhat the call failed with, or None."},
    {"done", is_done, METH_NOARGS, "done(self) -> bool\n\nWhether the call has ended."},
    {"cancelled", is_cancelled, METH_NOARGS,
     "cancelled(self) -> bool\n\nWhether cancel() has ended it."},
    {"cancel", as_method(&cancel_it), METH_VARARGS | METH_KEYWORDS,
     "cancel(self, msg: typing.Any = None) -> bool\n\n"
     "Ends the waiting. A call that is not sent yet is withdrawn."},
    {"add_done_callback", as_method(&add_done_callback), METH_FASTCALL | METH_KEYWORDS,
     "add_done_callback(self, callback: collections.abc.Callable[[typing.Any], object], *, "
     "context: typing.Any = None) -> None\n\n"
     "Calls callback(self) from the loop once the call has ended."},
    {"remove_done_callback", remove_done_callback, METH_O,
     "remove_done_callback(self, callback: collections.abc.Callable[[typing.Any], object]) -> "
     "int\n\nTakes a callback off again; how often it was there."},
    {"get_loop", get_loop, METH_NOARGS,
     "get_loop(self) -> typing.Any\n\nThe loop that the call was made in."},
    {"_make_cancelled_error", make_cancelled_error, METH_NOARGS,
     "_make_cancelled_error(self) -> BaseException\n\nFor asyncio.gather()."},
    {"send", send, METH_O, "send(self, value: typing.Any) -> typing.Any\n\nA step of await."},
    {"throw", as_method(&throw_into), METH_FASTCALL,
     "throw(self, *exception: typing.Any) -> typing.Any\n\n"
     "Raises it; a call that nobody awaits is withdrawn."},
    {"close", close, METH_NOARGS, "close(self) -> None\n\nA call that nobody awaits is withdrawn."},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS,
     "__class_getitem__(cls, item: typing.Any) -> typing.Any"},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef attributes[] = {
    {"_asyncio_future_blocking", get_blocking, set_blocking, "asyncio's own.", nullptr},
    {"_loop", loop_attribute, nullptr, "asyncio's own.", nullptr},
    {"_cancel_message", get_cancel_message, nullptr, "asyncio's own.", nullptr},
    {"_log_traceback", get_log_traceback, set_log_traceback, "asyncio's own.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Pending, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

template <class Function>
void* as_slot(Function* function) {
    return reinterpret_cast<void*>(function);
}

}  // namespace

py::object Pending::make(py::handle loop) {
    auto* const made = PyObject_GC_New(Pending, pending_type);
    if (made == nullptr) throw py::error_already_set();
    made->loop = loop.inc_ref().ptr();
    made->outcome = nullptr;
    made->callback = nullptr;
    made->context = nullptr;
    made->others = nullptr;
    made->weak_references = nullptr;
    made->call_state = nullptr;
    made->state = PendingState::waiting;
    made->blocking = false;
    made->unseen_error = false;
    PyObject_GC_Track(made->as_object());
    return stolen(made->as_object());
}

void bind_pending(const py::object& module) {
    PyType_Slot slots[] = {
        {Py_tp_doc, const_cast<char*>("What a call of hotcount.aio returns: await it.")},
        {Py_tp_dealloc, as_slot(&dealloc)},
        {Py_tp_finalize, as_slot(&complain)},
        {Py_tp_traverse, as_slot(&traverse)},
        {Py_tp_clear, as_slot(&clear)},
        {Py_tp_repr, as_slot(&represent)},
        {Py_tp_iter, as_slot(&itself)},
        {Py_tp_iternext, as_slot(&next_step)},
        {Py_am_await, as_slot(&itself)},
#if PY_VERSION_HEX >= 0x030A0000
        {Py_am_send, as_slot(&send_in_c)},
#endif
        {Py_tp_methods, methods},
        {Py_tp_members, members},
        {Py_tp_getset, attributes},
        {0, nullptr},
    };
    PyType_Spec spec{"hotcount._core.Pending", static_cast<int>(sizeof(Pending)), 0,
                     Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC, slots};
    const py::object type = checked(PyType_FromSpec(&spec));
    pending_type = reinterpret_cast<PyTypeObject*>(type.ptr());
    // Made by calls alone. (Py_TPFLAGS_DISALLOW_INSTANTIATION came with 3.10.)
    pending_type->tp_new = nullptr;
    Py_INCREF(pending_type);
    // So that create_task() takes it: asyncio asks no more than that.
    import_module("collections.abc").attr("Coroutine").attr("register")(type);
    module.attr("Pending") = type;
}

}  // namespace hotcount::python
