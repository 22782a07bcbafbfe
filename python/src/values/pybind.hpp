// The part of pybind11 that the extension uses: objects, casts and the GIL.
//
// Include this and not <pybind11/pybind11.h>, which binds functions and classes. That header holds
// static tables that point to its code, so every unit with it compiles 120 kB of code that no unit
// calls: 3.5 s of 5.3 (g++ 12, -O3, an empty unit). module.cpp alone includes it, because it makes
// the module. That header also defines the deleter and what() of py::error_already_set, which this
// part only declares. If another definition is missing, the import of _core names the symbol.
#pragma once

#include <pybind11/cast.h>
#include <pybind11/detail/class.h>
#include <pybind11/gil.h>

namespace hotcount::python {

namespace py = pybind11;

/// As Python's `import name`; gives the module that the whole dotted name means.
inline py::object import_module(const char* name) {
    PyObject* const module = PyImport_ImportModule(name);
    if (module == nullptr) throw py::error_already_set();
    return py::reinterpret_steal<py::object>(module);
}

}  // namespace hotcount::python
