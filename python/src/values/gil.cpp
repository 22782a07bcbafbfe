#include "gil.hpp"

#include <hotcount/detail/base/interrupt.hpp>

#include "pybind.hpp"

namespace hotcount::python {
namespace {

namespace py = pybind11;

// Of the thread that runs signal handlers. Raw pointers: nothing is left to destroy at exit.
struct Raised {
    PyObject* type;
    PyObject* value;
    PyObject* traceback;
};
thread_local Raised raised{};

// In the waiting thread, without the GIL. In any but Python's main thread it does nothing.
bool run_signal_handlers() {
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool stop = PyErr_CheckSignals() != 0;
    if (stop) PyErr_Fetch(&raised.type, &raised.value, &raised.traceback);
    PyGILState_Release(state);
    return stop;
}

}  // namespace

void install_interrupt_hook() { set_interrupt_hook(&run_signal_handlers); }

void raise_interrupt() {
    if (!interrupted()) return;
    clear_interrupt();
    PyErr_Restore(raised.type, raised.value, raised.traceback);
    raised = {};
    throw py::error_already_set();
}

}  // namespace hotcount::python
