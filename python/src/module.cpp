// The extension hotcount._core: what Python sees of the core. Binding only, no logic.
//
//   errors.cpp   Error -> exception      function.cpp  signatures and calls
//   convert.cpp  arguments               bind_*.cpp    one per concept
//   pending.cpp  what is awaited         loop_adapter.cpp  joins a client to an event loop
//
// Not declared safe without the GIL (py::mod_gil_not_used): handles and batches rely on it.
#include <hotcount/build_info.hpp>

#include "bind.hpp"
#include "errors.hpp"
#include "interrupt.hpp"

PYBIND11_MODULE(_core, module) {
    module.doc() = "The extension behind hotcount; import names from hotcount itself.";
    module.attr("__version__") = hotcount::kVersion;
    hotcount::python::load_exceptions();
    hotcount::python::install_interrupt_hook();
    // Batches and stores first: the signatures of the rest name them.
    hotcount::python::bind_batch(module);
    hotcount::python::bind_pending(module);
    hotcount::python::bind_store(module);
    hotcount::python::bind_async_store(module);
    hotcount::python::bind_counter(module);
    hotcount::python::bind_async_counter(module);
    hotcount::python::bind_period_counter(module);
    hotcount::python::bind_slotted_counter(module);
    hotcount::python::bind_limiter(module);
    hotcount::python::bind_sync_worker(module);
    hotcount::python::bind_votes(module);
    hotcount::python::bind_async_votes(module);
    hotcount::python::bind_live_sets(module);
}
