// Functions and methods as CPython itself calls them (METH_FASTCALL), for all that takes arguments.
//
// A pybind11 function costs 300 to 500 ns a call before it does anything, and where the arguments
// do not fit it prints them all: a store's URL with its password among them. So pybind11 makes the
// classes here, and the functions are made from a typed signature, which is at once what arguments
// are bound by, the first line of the docstring, and what pybind11-stubgen makes the stub of:
//
//   define<&counter_add>(cls, "add", "(self, key: str | bytes, n: int = 1, *, "
//                                    "timeout: float | None = None) -> int", "Adds n ...");
//
//   py::object counter_add(BoundCounter& self, const Arguments& arguments);
//
// An argument that the caller left out is a null handle: defaults stay with the options structs of
// the core, and the signature shows them.
#pragma once

#include <pybind11/pybind11.h>

#include <array>
#include <cstddef>
#include <new>
#include <string>
#include <vector>

#include "errors.hpp"

namespace hotcount::python {

namespace py = pybind11;

/// The arguments of one call, bound to parameters by position in the signature (self not counted).
/// Borrowed from the caller, who holds them until the call returns.
class Arguments {
  public:
    static constexpr std::size_t kMaxParameters = 24;

    py::handle operator[](std::size_t index) const { return slots_[index]; }
    /// Neither left out nor None.
    bool given(std::size_t index) const {
        return slots_[index] != nullptr && slots_[index] != Py_None;
    }
    /// What "*name" gathered: a tuple.
    const py::object& rest() const { return rest_; }
    /// What "**name" gathered: a dict.
    const py::object& options() const { return options_; }

  private:
    friend class Signature;
    std::array<PyObject*, kMaxParameters> slots_{};
    py::object rest_;
    py::object options_;
};

class Signature {
  public:
    Signature() = default;
    /// Reads "(self, a: T, b: T = default, *, c: T = default) -> T"; *rest and **options may
    /// gather what is left. Wrong text is a bug in the binding: it throws on import.
    Signature(std::string name, const std::string& text);

    /// Binds a vector call's arguments, or raises the TypeError that a Python function would.
    void bind(Arguments& arguments, PyObject* const* values, Py_ssize_t positional,
              PyObject* keyword_names) const;
    void bind(Arguments& arguments, const py::tuple& values, const py::dict& keywords) const;

    /// Parameter names, in order.
    std::vector<std::string> names() const;

  private:
    struct Parameter {
        PyObject* name;  // Interned and kept: compared by address.
        bool required;
    };
    std::size_t find(PyObject* keyword) const;
    void put(Arguments& arguments, PyObject* keyword, PyObject* value) const;
    void check_required(const Arguments& arguments) const;

    std::string name_;
    std::vector<Parameter> parameters_;
    std::size_t positional_{0};  // The first so many may be given by position.
    bool gathers_rest_{false};
    bool gathers_options_{false};
};

/// The C++ object inside `self`, whose class CPython has checked already.
template <class Self>
Self& self_of(PyObject* self) {
    auto* const instance = reinterpret_cast<py::detail::instance*>(self);
    // The usual layout: one C++ base. A Python class with several takes the long way.
    if (instance->simple_layout && instance->simple_value_holder[0] != nullptr) {
        return *static_cast<Self*>(instance->simple_value_holder[0]);
    }
    return *py::cast<Self*>(py::handle(self));  // Raises where __init__ never ran: guards.hpp.
}

/// Runs f and turns what it throws into a Python exception that is set.
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

namespace detail {

// One instantiation, so one signature, per C++ function.
template <auto Function>
struct Entry;

template <class Self, py::object (*Function)(Self&, const Arguments&)>
struct Entry<Function> {
    static inline Signature signature;
    static inline PyMethodDef definition;

    static PyObject* call(PyObject* self, PyObject* const* values, Py_ssize_t positional,
                          PyObject* keyword_names) {
        return guarded([&] {
            Arguments arguments;
            signature.bind(arguments, values, positional, keyword_names);
            return Function(self_of<Self>(self), arguments);
        });
    }
};

template <py::object (*Function)(const Arguments&)>
struct Entry<Function> {
    static inline Signature signature;
    static inline PyMethodDef definition;

    static PyObject* call(PyObject*, PyObject* const* values, Py_ssize_t positional,
                          PyObject* keyword_names) {
        return guarded([&] {
            Arguments arguments;
            signature.bind(arguments, values, positional, keyword_names);
            return Function(arguments);
        });
    }
};

/// "name(signature)\n\ntext", kept for ever, as CPython wants it.
const char* make_doc(const std::string& name, const std::string& signature, const char* text);

template <auto Function>
PyMethodDef* prepare(const char* name, const std::string& signature, const char* text) {
    using Made = Entry<Function>;
    Made::signature = Signature(name, signature);
    Made::definition =
        PyMethodDef{name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(&Made::call)),
                    METH_FASTCALL | METH_KEYWORDS, make_doc(name, signature, text)};
    return &Made::definition;
}

}  // namespace detail

/// Gives a class a method.
template <auto Function, class... Extra>
void define(py::class_<Extra...>& cls, const char* name, const std::string& signature,
            const char* text) {
    auto* const definition = detail::prepare<Function>(name, signature, text);
    auto method = py::reinterpret_steal<py::object>(
        PyDescr_NewMethod(reinterpret_cast<PyTypeObject*>(cls.ptr()), definition));
    if (!method) throw py::error_already_set();
    cls.attr(name) = method;
}

/// Gives a module a function.
template <auto Function>
void define(py::module_& module, const char* name, const std::string& signature, const char* text) {
    auto* const definition = detail::prepare<Function>(name, signature, text);
    auto function = py::reinterpret_steal<py::object>(
        PyCFunction_NewEx(definition, nullptr, py::object(module.attr("__name__")).ptr()));
    if (!function) throw py::error_already_set();
    module.attr(name) = function;
}

/// Gives a class its constructor: Factory takes the arguments and returns the bound object.
template <auto Factory, class... Extra>
void define_init(py::class_<Extra...>& cls, const std::string& signature, const char* text) {
    static Signature bound;
    bound = Signature(py::cast<std::string>(cls.attr("__name__")), signature);
    py::options plain;
    plain.disable_function_signatures();
    cls.def(py::init([](const py::args& values, const py::kwargs& keywords) {
                Arguments arguments;
                bound.bind(arguments, values, keywords);
                return Factory(arguments);
            }),
            detail::make_doc("__init__", signature, text));
}

}  // namespace hotcount::python
