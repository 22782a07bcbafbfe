// Where pybind11 would let a caller crash the interpreter, or read a password.
#pragma once

#include <pybind11/pybind11.h>

namespace hotcount::python {

/// Objects whose __init__ never ran, or failed: of C.__new__(C), of a subclass that forgets
/// super().__init__(), and `self` in the traceback of a constructor that raised. Makes every use of
/// one a TypeError that names its class, for all classes that the module has so far: as self of a
/// method, a property or an operator, as a buffer, and as an argument. Once, after the last class
/// is bound.
void refuse_unfinished(const pybind11::module_& module);

/// Calls of pybind11's own functions (all that define<>() did not make) whose arguments do not fit:
/// the TypeError shows none of them, and neither a keyword that is no UTF-8 nor None as self ends
/// the process. Once, after the last function is bound.
void guard_functions(const pybind11::module_& module);

}  // namespace hotcount::python
