// The extension hotcount._core: what Python sees of the core. Binding only, no logic.
//
//   native.cpp   what Python declares    table.hpp     its parameters and answers, by C++ type
//   result.hpp   declared dataclasses    options.hpp   options, a row each
//   errors.cpp   Error -> exception
//   convert.cpp  arguments               counter.cpp, votes.cpp ...   one per concept
//   pending.cpp  what is awaited         loop_adapter.cpp  joins a client to an event loop
//
// Not declared safe without the GIL (py::mod_gil_not_used): handles and batches rely on it.

#include <pybind11/pybind11.h>

#include <hotcount/build_info.hpp>

#include "native/native.hpp"
#include "native/store.hpp"
#include "values/errors.hpp"
#include "values/gil.hpp"

namespace py = pybind11;

extern "C" PyObject* PyInit_hotcount_core();

// Asked before pybind11 is: in a second interpreter of a process (mod_wsgi's default) it would wait
// for ever for the first one's state, and threads of ours that come back would come to the wrong one.
extern "C" PYBIND11_EXPORT PyObject* PyInit__core() {
    if (PyInterpreterState_Get() != PyInterpreterState_Main()) {
        PyErr_SetString(PyExc_ImportError,
                        "hotcount works in the main interpreter of a process only, not in a "
                        "subinterpreter (mod_wsgi: WSGIApplicationGroup %{GLOBAL})");
        return nullptr;
    }
    return PyInit_hotcount_core();
}

PYBIND11_MODULE(hotcount_core, module, py::multiple_interpreters::not_supported()) {
    module.doc() = "The extension behind hotcount; import names from hotcount itself.";
    module.attr("__version__") = hotcount::kVersion;
    hotcount::python::load_exceptions();
    hotcount::python::install_interrupt_hook();
    hotcount::python::send_logs_to_python();
    hotcount::python::use_sqlite_of_python();
    hotcount::python::bind_native(module);
    hotcount::python::bind_lifetime();
    // Batches and stores first: the signatures of the rest name them.
    hotcount::python::bind_batch(module);
    hotcount::python::bind_pending(module);
    hotcount::python::bind_stores();
    hotcount::python::bind_counter();
    hotcount::python::bind_period_counter();
    hotcount::python::bind_slotted_counter();
    hotcount::python::bind_limiter();
    hotcount::python::bind_concurrency_limit();
    hotcount::python::bind_votes();
    hotcount::python::bind_write_behind_counter();
    hotcount::python::bind_sync_worker();
    hotcount::python::bind_live_sets();
    hotcount::python::bind_rebuild();
}
