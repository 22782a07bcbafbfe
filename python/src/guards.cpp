#include "guards.hpp"

#include <array>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include "errors.hpp"
#include "function.hpp"

namespace hotcount::python {
namespace {

namespace py = pybind11;

// -- objects without an __init__ ---------------------------------------------------

constexpr std::size_t kMostClasses = 64;
std::array<const char*, kMostClasses> class_names{};

// pybind11 asks a class for memory when it is to hand out an object that has none yet, for styles
// of constructors that we do not use; what it hands out then is that memory, whatever is in it. All
// its ways to an object go through there, and so does self_of(). It tells its hook a size alone, so
// each class has a hook of its own.
template <std::size_t Index>
void* refuse(std::size_t) {
    raise_type(std::string{class_names[Index]} +
               ".__init__() of this object was never called, or it failed: the object cannot be "
               "used");
}

template <std::size_t... Index>
constexpr auto make_hooks(std::index_sequence<Index...>) {
    return std::array<void* (*)(std::size_t), sizeof...(Index)>{&refuse<Index>...};
}
constexpr auto kHooks = make_hooks(std::make_index_sequence<kMostClasses>{});

// -- calls whose arguments do not fit ----------------------------------------------

using FastCall = PyObject* (*)(PyObject*, PyObject* const*, std::size_t, PyObject*);
using SlowCall = PyObject* (*)(PyObject*, PyObject*, PyObject*);

// What pybind11 gave all its functions of this module.
PyCFunction original = nullptr;

// The message ends with the arguments, printed: a store's URL among them.
void cut_arguments() {
    constexpr std::string_view kArguments = "\n\nInvoked with: ";
    if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) return;
    py::error_already_set raised;
    const std::string text = py::str(raised.value());
    const auto at = text.find(kArguments);
    if (at == std::string::npos) return raised.restore();
    PyErr_SetString(PyExc_TypeError, text.substr(0, at).c_str());
}

// It prints them with no handler around, and an error there (a keyword that is no UTF-8) would find
// none in CPython.
template <class Call>
PyObject* call_guarded(Call&& call) {
    PyObject* result = guarded([&] { return py::reinterpret_steal<py::object>(call()); });
    if (result == nullptr) {
        (void)guarded([]() -> py::object {
            cut_arguments();
            return {};
        });
    }
    return result;
}

enum class Kind : std::uint8_t {
    function,
    method,
    entry  ///< To a `with` block: it takes any object for self, and hands it out.
};

void check_self(PyObject* self, Kind kind) {
    // pybind11 hands None on as a null pointer where a method is a member function.
    if (self == Py_None) raise_type("self is None");
    if (kind != Kind::entry) return;
    const auto& infos = py::detail::all_type_info(Py_TYPE(self));
    if (infos.size() != 1 || infos.front()->operator_new == nullptr) return;
    const auto* const instance = reinterpret_cast<py::detail::instance*>(self);
    if (!instance->simple_layout || instance->simple_holder_constructed) return;
    (void)infos.front()->operator_new(0);  // Refuses, and names the class.
}

template <Kind kKind>
PyObject* fast_call(PyObject* self, PyObject* const* values, std::size_t count, PyObject* names) {
    return call_guarded([&] {
        if (kKind != Kind::function && PyVectorcall_NARGS(count) > 0) check_self(values[0], kKind);
        return reinterpret_cast<FastCall>(reinterpret_cast<void (*)()>(original))(self, values,
                                                                                  count, names);
    });
}

template <Kind kKind>
PyObject* slow_call(PyObject* self, PyObject* values, PyObject* keywords) {
    return call_guarded([&] {
        if (kKind != Kind::function && PyTuple_GET_SIZE(values) > 0) {
            check_self(PyTuple_GET_ITEM(values, 0), kKind);
        }
        return reinterpret_cast<SlowCall>(reinterpret_cast<void (*)()>(original))(self, values,
                                                                                  keywords);
    });
}

template <Kind kKind>
PyCFunction guarded_for(const PyMethodDef& definition) {
    const bool fast = (definition.ml_flags & METH_FASTCALL) != 0;
    return reinterpret_cast<PyCFunction>(fast ? reinterpret_cast<void (*)()>(&fast_call<kKind>)
                                              : reinterpret_cast<void (*)()>(&slow_call<kKind>));
}

void guard(PyObject* value, Kind kind) {
    if (PyInstanceMethod_Check(value) != 0) value = PyInstanceMethod_GET_FUNCTION(value);
    if (PyCFunction_Check(value) == 0) return;
    PyMethodDef* const definition = reinterpret_cast<PyCFunctionObject*>(value)->m_ml;
    PyObject* const self = PyCFunction_GET_SELF(value);
    const std::string_view record = self == nullptr ? "" : Py_TYPE(self)->tp_name;
    if (record.find("function_record") == std::string_view::npos) return;  // Not pybind11's.
    const std::string_view name = definition->ml_name;
    if (kind == Kind::method && (name == "__enter__" || name == "__aenter__")) kind = Kind::entry;
    const PyCFunction ours = kind == Kind::function ? guarded_for<Kind::function>(*definition)
                             : kind == Kind::method ? guarded_for<Kind::method>(*definition)
                                                    : guarded_for<Kind::entry>(*definition);
    if (definition->ml_meth == ours) return;
    if (original != nullptr && definition->ml_meth != original) {
        throw std::logic_error("pybind11 has more than one way to call a function");
    }
    original = definition->ml_meth;
    definition->ml_meth = ours;
}

void guard_class(PyObject* cls) {
    for (const auto& [name, value] :
         py::reinterpret_borrow<py::dict>(reinterpret_cast<PyTypeObject*>(cls)->tp_dict)) {
        if (PyObject_TypeCheck(value.ptr(), &PyStaticMethod_Type) != 0) {
            guard(py::object(value.attr("__func__")).ptr(), Kind::function);
        }
        guard(value.ptr(), Kind::method);
        if (PyObject_TypeCheck(value.ptr(), &PyProperty_Type) == 0) continue;
        for (const char* accessor : {"fget", "fset"})
            guard(py::object(value.attr(accessor)).ptr(), Kind::method);
    }
}

}  // namespace

void refuse_unfinished(const py::module_& module) {
    std::size_t index = 0;
    for (const auto& [name, value] :
         py::reinterpret_borrow<py::dict>(PyModule_GetDict(module.ptr()))) {
        if (PyType_Check(value.ptr()) == 0) continue;
        auto* const type = reinterpret_cast<PyTypeObject*>(value.ptr());
        auto* const info = py::detail::get_type_info(type);
        if (info == nullptr) continue;
        if (index == kMostClasses) throw std::logic_error("raise kMostClasses");
        class_names[index] = type->tp_name;  // As long as the class, which lasts.
        info->operator_new = kHooks[index];
        ++index;
    }
}

void guard_functions(const py::module_& module) {
    for (const auto& [name, value] :
         py::reinterpret_borrow<py::dict>(PyModule_GetDict(module.ptr()))) {
        guard(value.ptr(), Kind::function);
        if (PyType_Check(value.ptr()) != 0) guard_class(value.ptr());
    }
}

}  // namespace hotcount::python
