// The one place where a core Error becomes a Python exception.
//
// Everything here needs the GIL.
#pragma once

#include <hotcount/error.hpp>
#include <hotcount/result.hpp>
#include <new>
#include <string>
#include <utility>

#include "pybind.hpp"

namespace hotcount::python {

namespace py = pybind11;

/// Loads the exception classes. Call it before the other functions.
void load_exceptions();

/// Returns the exception for an error without raising it, as batches keep one for each element.
py::object to_exception(const Error& error);

[[noreturn]] void raise(const Error& error);
[[noreturn]] void raise_config(std::string message);
[[noreturn]] void raise_type(const std::string& message);
/// Returns a shallow copy, so that callers cannot change each other's dict.
inline py::dict copy_of(const py::dict& errors) {
    auto copy = py::reinterpret_steal<py::dict>(PyDict_Copy(errors.ptr()));
    if (!copy) throw py::error_already_set();
    return copy;
}
/// BatchError with the whole result and the errors by index.
[[noreturn]] void raise_batch(const py::object& result, const py::dict& errors, std::size_t size);

/// Runs f and sets the Python exception for a C++ exception that it throws.
template <class F>
PyObject* guarded(F&& f) {
    try {
        return f().release().ptr();
    } catch (py::error_already_set& error) {
        error.restore();
    } catch (py::builtin_exception& error) {
        error.set_error();
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
    return nullptr;
}

/// The value of a result, or its error raised.
template <class T>
T unwrap(Result<T> result) {
    if (!result.ok()) raise(result.error());
    if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

}  // namespace hotcount::python
