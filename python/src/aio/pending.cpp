#include "pending.hpp"

#include <string_view>
#include <utility>

#include "values/gil.hpp"

namespace hotcount::python {
namespace {

py::object borrowed(PyObject* object) { return py::reinterpret_borrow<py::object>(object); }
py::object stolen(PyObject* object) { return py::reinterpret_steal<py::object>(object); }

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
        // The loop is closed: nobody waits any more. Who did would have asked what it failed with.
        unseen_error = false;
    }
}

}  // namespace hotcount::python
