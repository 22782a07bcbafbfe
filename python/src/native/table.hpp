// The one table of conversions, by C++ type: From<T> reads an argument, To<T> makes what Python
// gets.
//
//   template <> struct From<Duration> { static Duration read(const Argument&); };
//   template <> struct To<Duration> { static py::object make(Duration); };
//
// native.hpp looks a parameter's type up here, so a type is converted in one way wherever it
// stands. A type that one concept alone has is specialised in that concept's file. What is of the
// wrong type is a TypeError, what is of the right one and bad a ConfigError: convert.hpp.
//
// A From may also have
//   kTakes     how many Python parameters it reads (read() gets the first of them): default 1
//   kIsBatch   it is a batch: the GIL is released, and errors are told by index
//   kReleasesGil   a call with it takes long in memory too, so that the GIL is released there
//   read(argument, self)   what it reads depends on the object of the call, as ids of votes do
//   instead(held)   a shared_ptr to the object that is called in the place of the call's; null: that
//   pass(held) what of it the core's function gets, a tuple of references: default itself
//   check(first, name)   what must hold of the declared defaults: default that they can be read
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "values/convert.hpp"
#include "values/pybind.hpp"

namespace hotcount::python {

namespace py = pybind11;

/// One argument of a call. `value` is never null: if the caller left the argument out, it is the
/// default of the declaration, and `given` is false.
struct Argument {
    PyObject* value;
    const char* name;
    bool given;
};

template <class T>
struct From;

namespace detail {
template <class Member>
struct MemberTypes;
template <class Struct, class T>
struct MemberTypes<T Struct::*> {
    using Owner = Struct;
    using Type = T;
};
}  // namespace detail

/// Of &Struct::field: its Owner and its Type.
template <auto Member>
using FieldOf = detail::MemberTypes<decltype(Member)>;

template <class T, class Source, class... Self>
concept Readable = requires(const Source& source, Self&... self) {
    From<T>::read(source, self...);
};

/// `source`: an Argument, or the first of several. `self`: what the object of a method's call holds.
template <class T, class Source, class... Self>
T read_as(const Source& source, Self&... self) {
    if constexpr (Readable<T, Source, Self...>) {
        return From<T>::read(source, self...);
    } else {
        return From<T>::read(source);
    }
}
// To<T> is declared in batch.hpp, whose rows ask it.

// -- arguments ------------------------------------------------------------------------------------

/// Whatever it is: for functions that look at it themselves.
template <>
struct From<py::handle> {
    static py::handle read(const Argument& argument) { return argument.value; }
};

/// str or bytes: a key, an op_id. Borrowed from the caller, who holds it during the call.
template <>
struct From<std::string_view> {
    static std::string_view read(const Argument& argument) {
        return to_bytes(argument.value, argument.name);
    }
};

/// str alone: a word, a name.
template <>
struct From<std::string> {
    static std::string read(const Argument& argument) {
        return to_text(argument.value, argument.name);
    }
};

/// str or bytes that is kept, as a prefix of keys; str again if it is UTF-8.
struct KeyText {
    std::string text;
    operator std::string() const { return text; }
};
template <>
struct From<KeyText> {
    static KeyText read(const Argument& argument) {
        return {std::string{to_bytes(argument.value, argument.name)}};
    }
};

template <>
struct From<bool> {
    static bool read(const Argument& argument) { return to_bool(argument.value, argument.name); }
};

/// An option or a cost: a ConfigError if it does not fit 64 bits.
template <>
struct From<std::int64_t> {
    static std::int64_t read(const Argument& argument) {
        return to_option(argument.value, argument.name);
    }
};

template <>
struct From<double> {
    static double read(const Argument& argument) {
        const double number = PyFloat_AsDouble(argument.value);
        if (number == -1 && PyErr_Occurred() != nullptr) {
            if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw py::error_already_set();
            PyErr_Clear();
            raise_wrong_type(argument.name, "float", argument.value);
        }
        return number;
    }
};

/// How many: 0 and more.
template <>
struct From<std::size_t> {
    static std::size_t read(const Argument& argument) {
        return to_size(argument.value, argument.name);
    }
};

/// What is added to a count: a CounterOverflowError if it does not fit 64 bits.
struct Amount {
    std::int64_t number;
    operator std::int64_t() const { return number; }
};
template <>
struct From<Amount> {
    static Amount read(const Argument& argument) {
        return {to_amount(argument.value, argument.name)};
    }
};

/// Seconds or a timedelta, more than 0.
template <>
struct From<Duration> {
    static Duration read(const Argument& argument) {
        return to_duration(argument.value, argument.name);
    }
};

/// The same, or 0.
struct Delay {
    Delay(Duration length = {}) : duration(length) {}
    Duration duration;
    operator Duration() const { return duration; }
};
template <>
struct From<Delay> {
    static Delay read(const Argument& argument) { return to_delay(argument.value, argument.name); }
};

/// None is nothing. With a Timeout, nothing means the store's own.
template <class T>
struct From<std::optional<T>> {
    template <class... Self>
    requires Readable<T, Argument, Self...>
    static std::optional<T> read(const Argument& argument, Self&... self) {
        if (argument.value == Py_None) return std::nullopt;
        return From<T>::read(argument, self...);
    }
};

/// errors= of a batch. The core is not told: it says what becomes of the core's answers.
template <>
struct From<OnErrors> {
    static OnErrors read(const Argument& argument) { return to_on_errors(argument.value); }
    static std::tuple<> pass(const OnErrors&) { return {}; }
};

// -- answers --------------------------------------------------------------------------------------

template <>
struct To<bool> {
    static py::object make(bool value) { return py::bool_(value); }
};

template <>
struct To<std::int64_t> {
    static py::object make(std::int64_t value) { return py::int_(value); }
};

template <>
struct To<std::size_t> {
    static py::object make(std::size_t value) { return py::int_(value); }
};

template <>
struct To<double> {
    static py::object make(double value) { return py::float_(value); }
};

template <>
struct To<Duration> {
    static py::object make(Duration value) { return py::float_(to_seconds(value)); }
};

template <>
struct To<Delay> : To<Duration> {};

template <>
struct To<std::string_view> {
    static py::object make(std::string_view text) { return py::str(text.data(), text.size()); }
};
template <>
struct To<std::string> : To<std::string_view> {};
template <>
struct To<const char*> : To<std::string_view> {};

template <>
struct To<KeyText> {
    static py::object make(const std::string& text) {
        const auto size = static_cast<Py_ssize_t>(text.size());
        auto made =
            py::reinterpret_steal<py::object>(PyUnicode_DecodeUTF8(text.data(), size, nullptr));
        if (made) return made;
        PyErr_Clear();
        return py::bytes(text);
    }
};

/// What is an object of Python already.
template <>
struct To<py::handle> {
    static py::object make(py::handle value) { return py::reinterpret_borrow<py::object>(value); }
};
template <>
struct To<py::object> : To<py::handle> {};

template <class T>
struct To<std::optional<T>> {
    static py::object make(const std::optional<T>& value) {
        return value ? To<T>::make(*value) : py::none();
    }
};

/// A tuple: what a call answers is not changed afterwards.
template <class T>
struct To<std::vector<T>> {
    static py::object make(const std::vector<T>& values) {
        py::tuple all(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) all[i] = To<T>::make(values[i]);
        return all;
    }
};

}  // namespace hotcount::python
