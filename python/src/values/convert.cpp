#include "convert.hpp"

#include <datetime.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "gil.hpp"

namespace hotcount::python {
namespace {

constexpr double kMaxSeconds = 100.0 * 365.25 * 86400;  // Fits nanoseconds, and any clock plus it.

const py::object& uuid_class() {
    return made_once<py::object>([] { return py::object(import_module("uuid").attr("UUID")); });
}

// timedelta as seconds, exactly as far as a double goes; none for another type.
std::optional<double> timedelta_seconds(py::handle value) {
    if (PyDateTimeAPI == nullptr) PyDateTime_IMPORT;
    if (PyDateTimeAPI == nullptr) throw py::error_already_set();
    if (!PyDelta_Check(value.ptr())) return std::nullopt;
    return PyDateTime_DELTA_GET_DAYS(value.ptr()) * 86400.0 +
           PyDateTime_DELTA_GET_SECONDS(value.ptr()) +
           PyDateTime_DELTA_GET_MICROSECONDS(value.ptr()) / 1e6;
}

double number_of_seconds(py::handle value, const Where& where) {
    constexpr const char* kExpected = "float seconds or timedelta";
    if (PyFloat_Check(value.ptr())) return PyFloat_AS_DOUBLE(value.ptr());
    if (PyBool_Check(value.ptr())) raise_wrong_type(where, kExpected, value);
    if (PyIndex_Check(value.ptr())) {
        const auto whole = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
        if (!whole) throw py::error_already_set();
        const double seconds = PyLong_AsDouble(whole.ptr());
        if (PyErr_Occurred() == nullptr) return seconds;
        PyErr_Clear();
        return HUGE_VAL;  // Beyond a double: refused as too long.
    }
    if (const auto seconds = timedelta_seconds(value)) return *seconds;
    raise_wrong_type(where, kExpected, value);
}

Duration checked_duration(double seconds, const Where& where, double least) {
    const bool fits = std::isfinite(seconds) && seconds >= least && seconds <= kMaxSeconds;
    const auto nanoseconds = fits ? std::llround(seconds * 1e9) : 0;
    if (!fits || (least > 0 && nanoseconds == 0)) {
        const std::string bound = least > 0 ? "more than 0" : "0 or more";
        const py::float_ value(seconds);
        const std::string takes = std::isfinite(seconds)
                                      ? " seconds; it takes " + bound + " and at most 100 years"
                                      : "; it takes a finite number of seconds, " + bound;
        raise_bad(where, "is " + std::string(py::str(value)) + takes, value);
    }
    return Duration{nanoseconds};
}

Result<std::string_view> utf8(py::handle value, const Where& where) {
    Py_ssize_t size = 0;
    const char* const bytes = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
    if (bytes == nullptr) {
        if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw py::error_already_set();
        PyErr_Clear();
        return make_error(ErrorCode::config,
                          where.str() + " has a lone surrogate, which UTF-8 cannot hold")
            .about(&ErrorFacts::option, where.argument);
    }
    return std::string_view{bytes, static_cast<std::size_t>(size)};
}

}  // namespace

std::string Where::str() const {
    if (!index) return argument;
    return std::string{argument} + "[" + std::to_string(*index) + "]";
}

std::string type_name(py::handle value) {
    PyTypeObject* const type = Py_TYPE(value.ptr());
    std::string name = type->tp_name;
    // A class that is written in Python has only its name there.
    if ((type->tp_flags & Py_TPFLAGS_HEAPTYPE) != 0 && name.find('.') == std::string::npos) {
        const auto module = py::str(py::getattr(py::type::of(value), "__module__", py::str()));
        const std::string text = module;
        if (text.starts_with("hotcount.aio")) return "hotcount.aio." + name;
        if (text.starts_with("hotcount.")) return "hotcount." + name;
    }
    // Users know our classes by the package, not by the extension that they stand in.
    constexpr std::string_view kCore = "hotcount._core.";
    constexpr std::string_view kAwaitable = "hotcount._core.Async";
    if (name.starts_with(kAwaitable)) return name.replace(0, kAwaitable.size(), "hotcount.aio.");
    if (name.starts_with(kCore)) name.replace(0, kCore.size(), "hotcount.");
    return name;
}

void raise_wrong_type(const Where& where, const char* expected, py::handle value) {
    raise_type(where.str() + " must be " + expected + ", not " + type_name(value));
}

void raise_wrong_key(const Where& where, const char* expected, py::handle value) {
    const bool is_key = std::string_view{where.argument}.find("key") != std::string_view::npos;
    if (!is_key || !PyLong_Check(value.ptr()) || PyBool_Check(value.ptr())) {
        raise_wrong_type(where, expected, value);
    }
    raise_type(where.str() + " must be " + expected + ", not " + type_name(value) +
               ": write str(key) or f\"item:{key}\"");
}

namespace {

// A word that is an option's, in quotes. Not a URL, which stands there if two arguments were
// swapped: its password would be shown.
std::string shown(py::handle value, std::string text) {
    if (PyUnicode_Check(value.ptr()) && text.find("://") != std::string::npos) return "***";
    return text;
}
}  // namespace

std::string quoted(py::handle value) { return shown(value, std::string(py::repr(value))); }

void raise_bad(const Where& where, const std::string& says, py::handle value) {
    Error error = make_error(ErrorCode::config, where.str() + " " + says);
    error.about(&ErrorFacts::option, where.argument);
    if (value) error.about(&ErrorFacts::value, shown(value, std::string(py::str(value))));
    raise(error);
}

// -- text -------------------------------------------------------------------

Result<std::string_view> read_bytes(py::handle value, const Where& where) {
    if (PyUnicode_Check(value.ptr())) return utf8(value, where);
    if (PyBytes_Check(value.ptr())) {
        return std::string_view{PyBytes_AS_STRING(value.ptr()),
                                static_cast<std::size_t>(PyBytes_GET_SIZE(value.ptr()))};
    }
    raise_wrong_key(where, "str or bytes", value);
}

Result<std::string_view> read_text(py::handle value, const Where& where) {
    if (!PyUnicode_Check(value.ptr())) raise_wrong_type(where, "str", value);
    return utf8(value, where);
}

std::string_view to_bytes(py::handle value, const Where& where) {
    if (const auto text = ascii_of(value.ptr()); text.data() != nullptr) [[likely]]
        return text;
    return unwrap(read_bytes(value, where));
}

std::string to_word(py::handle value, const Where& where) {
    std::string word = to_text(value, where);
    if (shown(value, word) != word) raise_bad(where, "is a URL; it takes a word", value);
    return word;
}

std::string to_text(py::handle value, const Where& where) {
    return std::string{unwrap(read_text(value, where))};
}

// -- numbers ----------------------------------------------------------------

namespace {

// None if it does not fit 64 bits.
std::optional<std::int64_t> integer(py::handle value, const Where& where) {
    py::object held;
    PyObject* number = value.ptr();
    if (!PyLong_CheckExact(number)) {
        // bool is an int in Python; True votes and False counts have been bugs too often.
        if (PyBool_Check(number) || !PyIndex_Check(number)) raise_wrong_type(where, "int", value);
        refuse_masked(value, where);
        held = py::reinterpret_steal<py::object>(PyNumber_Index(number));
        if (!held) throw py::error_already_set();
        number = held.ptr();
    }
    int overflow = 0;
    const long long result = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow != 0) return std::nullopt;
    return result;
}

Error beyond_64_bits(const Where& where, ErrorCode code) {
    return make_error(code, where.str() + " does not fit in signed 64 bits")
        .about(&ErrorFacts::option, where.argument);
}

}  // namespace

Result<std::int64_t> read_integer(py::handle value, const Where& where, ErrorCode out_of_range) {
    if (const auto number = integer(value, where)) return *number;
    return beyond_64_bits(where, out_of_range);
}

std::int64_t to_amount(py::handle value, const Where& where) {
    if (const auto number = integer(value, where)) return *number;
    raise(beyond_64_bits(where, ErrorCode::overflow));
}

std::int64_t to_option(py::handle value, const Where& where) {
    if (const auto number = integer(value, where)) return *number;
    raise(beyond_64_bits(where, ErrorCode::config));
}

std::size_t to_size(py::handle value, const Where& where) {
    const std::int64_t number = to_option(value, where);
    if (number < 0) {
        raise_bad(where, "is " + std::to_string(number) + "; it takes 0 or more", value);
    }
    return static_cast<std::size_t>(number);
}

bool to_bool(py::handle value, const Where& where) {
    if (!PyBool_Check(value.ptr())) raise_wrong_type(where, "bool", value);
    return value.ptr() == Py_True;
}

// -- times ------------------------------------------------------------------

Duration to_duration(py::handle value, const Where& where) {
    return checked_duration(number_of_seconds(value, where), where, 1e-9);
}

Duration to_delay(py::handle value, const Where& where) {
    return checked_duration(number_of_seconds(value, where), where, 0);
}

double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// -- rows -------------------------------------------------------------------

IdType to_id_type(py::handle value, const Where& where) {
    if (value.ptr() == reinterpret_cast<PyObject*>(&PyLong_Type)) return IdType::integer;
    if (value.ptr() == reinterpret_cast<PyObject*>(&PyUnicode_Type)) return IdType::text;
    if (value.is(uuid_class())) return IdType::uuid;
    raise_bad(where, "is " + quoted(value) + "; it takes int, str or uuid.UUID", value);
}

Result<sql::Id> read_id(py::handle value, IdType type, const Where& where) {
    switch (type) {
        case IdType::integer: {
            auto number = read_integer(value, where, ErrorCode::config);
            if (!number) return std::move(number).error();
            return sql::Id{*number};
        }
        case IdType::text: {
            auto text = read_text(value, where);
            if (!text) return std::move(text).error();
            return sql::Id{std::string{*text}};
        }
        case IdType::uuid:
            break;
    }
    if (!py::isinstance(value, uuid_class())) raise_wrong_type(where, "uuid.UUID", value);
    return sql::Id{std::string(py::str(value))};
}

sql::Id to_id(py::handle value, IdType type, const Where& where) {
    return unwrap(read_id(value, type, where));
}

py::object from_id(const sql::Id& id, IdType type) {
    if (const auto* number = std::get_if<std::int64_t>(&id)) return py::int_(*number);
    py::str text(std::get<std::string>(id));
    if (type == IdType::uuid) return uuid_class()(text);
    return text;
}

// -- batches ----------------------------------------------------------------

std::size_t to_choice(py::handle value, const Where& where,
                      std::span<const std::string_view> choices) {
    const std::string word = to_text(value, where);
    std::string known;
    std::size_t index = 0;
    for (const std::string_view choice : choices) {
        if (word == choice) return index;
        ++index;
        known += (known.empty() ? "'" : ", '") + std::string{choice} + "'";
    }
    raise_bad(where, "is " + quoted(value) + "; it takes " + known, value);
}

void refuse_ways(py::handle value, const Where& where,
                 std::initializer_list<std::string_view> ways) {
    const std::string word = to_text(value, where);
    if (std::find(ways.begin(), ways.end(), word) == ways.end()) return;
    raise_bad(where,
              "is " + quoted(value) +
                  ", which the library does not have: hotcount-load compares with it, and "
                  "notebooks/ways.py has its code",
              value);
}

}  // namespace hotcount::python
