// What we use of asyncio, looked up when the first awaitable call is made: importing hotcount does
// not import asyncio.
#pragma once

#include "values/pybind.hpp"

namespace hotcount::python {

namespace py = pybind11;

/// Kept for ever: pointers into it stay good while the interpreter shuts down.
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
