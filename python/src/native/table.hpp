// The one table of conversions, by C++ type: From<T> reads an argument, To<T> makes what Python
// gets.
//
//   template <> struct From<Duration> { static Duration read(const Argument&); };
//   template <> struct To<Duration> { static py::object make(Duration); };
//
// native.hpp looks a parameter's type up here, so a type is converted in one way wherever it
// stands. A type that one concept alone has is specialised in that concept's file. An argument of
// the wrong type is a TypeError, a bad value of the right type a ConfigError: convert.hpp.
//
// A From may also have
//   kTakes     how many Python parameters it reads (read() gets the first of them): default 1
//   kIsBatch   it is a batch: the GIL is released, and errors are told by index
//   kReleasesGil   a call with it takes long in memory too, so that the GIL is released there
//   read(argument, self)   the result depends on the object of the call, as for ids of votes
//   instead(held)   a shared_ptr to the object that is called in the place of the call's; null: that
//   pass(held) what of it the core's function gets, a tuple of references: default itself
//   check(first, name)   what must hold of the declared defaults: default that they can be read
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
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

namespace detail {
/// GCC and Clang end the name of this function with "Member = &hotcount::Tally::up]".
template <auto Member>
constexpr std::string_view signature_with() {
    return __PRETTY_FUNCTION__;
}
template <auto Member>
constexpr auto member_chars() {
    constexpr std::string_view kSignature = signature_with<Member>();
    constexpr std::string_view kUpToName =
        kSignature.substr(0, kSignature.find_first_of(";]", kSignature.find("Member = ")));
    constexpr std::string_view kName = kUpToName.substr(kUpToName.rfind(':') + 1);
    std::array<char, kName.size() + 1> chars{};
    std::copy(kName.begin(), kName.end(), chars.begin());
    return chars;
}
template <auto Member>
inline constexpr auto kMemberChars = member_chars<Member>();
}  // namespace detail

/// Of &Struct::field: "field".
template <auto Member>
inline constexpr const char* kMemberName = detail::kMemberChars<Member>.data();

/// The words of an enumeration whose members are numbered from 0. From and To are made of them.
template <class Enum>
inline constexpr std::nullptr_t kWords{};
template <class Enum>
concept HasWords = !std::is_same_v<decltype(kWords<Enum>), const std::nullptr_t>;

template <class T, class Source, class... Self>
concept Readable = requires(const Source& source, Self&... self) {
    From<T>::read(source, self...);
};

/// `source`: an Argument, or the first of several. `self`: what the object of a method's call
/// holds.
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

/// Any object, for functions that check it themselves.
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

/// A str that is not empty; None stands for an empty one.
struct TextOrNone {
    std::string text;
    operator std::string() const { return text; }
};
template <>
struct From<TextOrNone> {
    static TextOrNone read(const Argument& argument) {
        if (argument.value == Py_None) return {};
        auto text = From<std::string>::read(argument);
        if (text.empty()) raise_config(std::string{argument.name} + " is empty");
        return {std::move(text)};
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
    static std::tuple<std::string_view> pass(const KeyText& key) { return {key.text}; }
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

/// Seconds, of a result that somebody has made.
template <>
struct From<double> {
    static double read(const Argument& argument) {
        const double number = PyFloat_AsDouble(argument.value);
        if (number == -1 && PyErr_Occurred() != nullptr) {
            if (PyErr_ExceptionMatches(PyExc_TypeError) == 0) throw py::error_already_set();
            PyErr_Clear();
            raise_wrong_type(argument.name, "float seconds", argument.value);
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

/// An amount to add to a count. CounterOverflowError if it does not fit 64 bits.
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

/// Seconds or a timedelta, 0 or more.
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
    static auto pass(const std::optional<T>& held) requires requires { From<T>::pass(*held); }
    {
        using Passed = std::decay_t<std::tuple_element_t<0, decltype(From<T>::pass(*held))>>;
        if (!held) return std::tuple<std::optional<Passed>>{};
        return std::tuple<std::optional<Passed>>{std::get<0>(From<T>::pass(*held))};
    }
};

template <HasWords Enum>
struct From<Enum> {
    static Enum read(const Argument& argument) {
        return static_cast<Enum>(to_choice(argument.value, argument.name, kWords<Enum>));
    }
};

/// A tuple.
template <>
struct From<std::vector<std::string>> {
    static std::vector<std::string> read(const Argument& argument) {
        if (PyTuple_Check(argument.value) == 0) {
            raise_wrong_type(argument.name, "tuple of str", argument.value);
        }
        std::vector<std::string> texts;
        for (const auto& text : py::reinterpret_borrow<py::tuple>(argument.value)) {
            const std::string name = Where{argument.name, texts.size()}.str();
            texts.push_back(to_text(text, name.c_str()));
        }
        return texts;
    }
};

/// errors= of a batch. The core is not told: it says what becomes of the core's answers.
template <>
struct From<OnErrors> {
    static OnErrors read(const Argument& argument) {
        return static_cast<OnErrors>(to_choice(argument.value, argument.name, {"raise", "return"}));
    }
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

template <>
struct To<TextOrNone> {
    static py::object make(const std::string& text) {
        return text.empty() ? py::object(py::none()) : To<std::string_view>::make(text);
    }
};

template <HasWords Enum>
struct To<Enum> {
    static py::object make(Enum word) {
        return To<std::string_view>::make(kWords<Enum>.at(static_cast<std::size_t>(word)));
    }
};

/// Python objects, which need no conversion.
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

/// A dict of the members of a struct, by their names.
template <auto... Members, class Row>
py::dict to_dict(const Row& row) {
    py::dict all;
    ((all[kMemberName<Members>] = row.*Members), ...);
    return all;
}

}  // namespace hotcount::python
