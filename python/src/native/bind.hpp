// One function per concept; module.cpp calls them in this order.
#pragma once

#include "values/pybind.hpp"

namespace hotcount::python {

namespace py = pybind11;

void bind_lifetime();
void bind_batch(const py::object& module);
void bind_pending(const py::object& module);
void bind_stores();
void bind_counter();
void bind_period_counter();
void bind_slotted_counter();
void bind_live_sets();
void bind_rebuild();
void bind_limiter();
void bind_concurrency_limit();
void bind_sync_worker();
void bind_votes();
void bind_write_behind_counter();

}  // namespace hotcount::python
