// Shared by LiveSets and Rebuild: the conversion of scores, and a LiveSets as an argument.
#pragma once

#include <cmath>
#include <hotcount/live_sets.hpp>
#include <memory>
#include <string>

#include "native/native_calls.hpp"

namespace hotcount::python {

/// Any number that has an order.
struct Score {
    double number;
    operator double() const { return number; }
};

template <>
struct From<Score> {
    static bool is_real(py::handle value) {
        const auto& type =
            made_once<py::object>([] { return py::object(import_module("numbers").attr("Real")); });
        return py::isinstance(value, type);
    }

    static Score read(const Argument& argument) { return {read(argument.value, argument.name)}; }
    static double read(py::handle value, const Where& where) {
        // float and int, and what counts as a real number, such as NumPy's; bool does not.
        const bool plain = PyFloat_Check(value.ptr()) || PyLong_CheckExact(value.ptr());
        if (!plain && (PyBool_Check(value.ptr()) || !is_real(value))) {
            raise_wrong_type(where, "float or int", value);
        }
        const double score = PyFloat_AsDouble(value.ptr());
        if (score == -1.0 && PyErr_Occurred() != nullptr) {
            if (PyErr_ExceptionMatches(PyExc_OverflowError) == 0) throw py::error_already_set();
            PyErr_Clear();
            raise_config(where.str() + " is beyond the range of a float");
        }
        if (std::isnan(score)) {
            raise_config(where.str() + " is nan; it takes numbers that have an order");
        }
        return score;
    }
};

/// The LiveSets, sync or aio, that an argument is. TypeError for another object.
std::shared_ptr<Bound<LiveSets>> live_sets_of(py::handle object, const char* name);

}  // namespace hotcount::python
