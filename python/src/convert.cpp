#include "convert.hpp"

#include <datetime.h>

#include <cmath>
#include <cstring>

namespace hotcount::python {
namespace {

constexpr double kMaxSeconds = 100.0 * 365.25 * 86400;  // Fits nanoseconds, and any clock plus it.

py::object& uuid_class() {
    // Never released: it may be asked for while the interpreter shuts down.
    static auto* const type = new py::object(py::module_::import("uuid").attr("UUID"));
    return *type;
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
        raise_config(where.str() + " is " + std::string(py::str(py::float_(seconds))) +
                     " seconds; it takes " + bound + " and at most 100 years");
    }
    return Duration{nanoseconds};
}

// A one-dimensional contiguous int64 buffer, such as a NumPy column, or none.
class Int64Buffer {
  public:
    explicit Int64Buffer(py::handle value) {
        if (!PyObject_CheckBuffer(value.ptr()) || PyBytes_Check(value.ptr())) return;
        if (PyObject_GetBuffer(value.ptr(), &view_, PyBUF_ND | PyBUF_FORMAT) != 0) {
            PyErr_Clear();  // Not contiguous, or without a format: read as a sequence instead.
            return;
        }
        held_ = true;
        const std::string_view format = view_.format == nullptr ? "B" : view_.format;
        fits_ = view_.ndim == 1 && view_.itemsize == sizeof(std::int64_t) &&
                (format == "l" || format == "q" || format == "@l" || format == "@q" ||
                 format == "=q" || format == "<q");
    }
    Int64Buffer(const Int64Buffer&) = delete;
    Int64Buffer& operator=(const Int64Buffer&) = delete;
    ~Int64Buffer() {
        if (held_) PyBuffer_Release(&view_);
    }

    explicit operator bool() const { return fits_; }
    // Copied: another thread may write to it while the core reads.
    std::vector<std::int64_t> values() const {
        const auto* const first = static_cast<const std::int64_t*>(view_.buf);
        return {first, first + view_.shape[0]};
    }

  private:
    Py_buffer view_{};
    bool held_{false};
    bool fits_{false};
};

Result<std::string_view> utf8(py::handle value, const Where& where) {
    Py_ssize_t size = 0;
    const char* const bytes = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
    if (bytes == nullptr) {
        if (PyErr_ExceptionMatches(PyExc_UnicodeEncodeError) == 0) throw py::error_already_set();
        PyErr_Clear();
        return make_error(ErrorCode::config,
                          where.str() + " has a lone surrogate, which UTF-8 cannot hold");
    }
    return std::string_view{bytes, static_cast<std::size_t>(size)};
}

}  // namespace

std::string Where::str() const {
    if (!index) return argument;
    return std::string{argument} + "[" + std::to_string(*index) + "]";
}

std::string type_name(py::handle value) {
    std::string name = Py_TYPE(value.ptr())->tp_name;
    // Users know our classes by the package, not by the extension that they stand in.
    constexpr std::string_view kCore = "hotcount._core.";
    if (name.starts_with(kCore)) name.replace(0, kCore.size(), "hotcount.");
    return name;
}

void raise_wrong_type(const Where& where, const char* expected, py::handle value) {
    raise_type(where.str() + " must be " + expected + ", not " + type_name(value));
}

// -- text -------------------------------------------------------------------

Result<std::string_view> read_bytes(py::handle value, const Where& where) {
    if (PyUnicode_Check(value.ptr())) return utf8(value, where);
    if (PyBytes_Check(value.ptr())) {
        return std::string_view{PyBytes_AS_STRING(value.ptr()),
                                static_cast<std::size_t>(PyBytes_GET_SIZE(value.ptr()))};
    }
    raise_wrong_type(where, "str or bytes", value);
}

Result<std::string_view> read_text(py::handle value, const Where& where) {
    if (!PyUnicode_Check(value.ptr())) raise_wrong_type(where, "str", value);
    return utf8(value, where);
}

std::string_view to_bytes(py::handle value, const Where& where) {
    return unwrap(read_bytes(value, where));
}

std::string to_text(py::handle value, const Where& where) {
    return std::string{unwrap(read_text(value, where))};
}

std::optional<std::string_view> to_optional_bytes(py::handle value, const Where& where) {
    if (!value || value.is_none()) return std::nullopt;
    return to_bytes(value, where);
}

// -- numbers ----------------------------------------------------------------

Result<std::int64_t> read_integer(py::handle value, const Where& where, ErrorCode out_of_range) {
    py::object held;
    PyObject* number = value.ptr();
    if (!PyLong_CheckExact(number)) {
        // bool is an int in Python; True votes and False counts have been bugs too often.
        if (PyBool_Check(number) || !PyIndex_Check(number)) raise_wrong_type(where, "int", value);
        held = py::reinterpret_steal<py::object>(PyNumber_Index(number));
        if (!held) throw py::error_already_set();
        number = held.ptr();
    }
    int overflow = 0;
    const long long result = PyLong_AsLongLongAndOverflow(number, &overflow);
    if (overflow != 0) {
        return make_error(out_of_range, where.str() + " does not fit in signed 64 bits");
    }
    return static_cast<std::int64_t>(result);
}

std::int64_t to_amount(py::handle value, const Where& where) {
    return unwrap(read_integer(value, where, ErrorCode::overflow));
}

std::int64_t to_option(py::handle value, const Where& where) {
    return unwrap(read_integer(value, where, ErrorCode::config));
}

std::size_t to_size(py::handle value, const Where& where) {
    const std::int64_t number = to_option(value, where);
    if (number < 0) {
        raise_config(where.str() + " is " + std::to_string(number) + "; it takes 0 or more");
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

Timeout to_timeout(py::handle value) {
    if (!value || value.is_none()) return std::nullopt;
    return to_duration(value, "timeout");
}

double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

// -- rows -------------------------------------------------------------------

IdType to_id_type(py::handle value, const Where& where) {
    if (value.ptr() == reinterpret_cast<PyObject*>(&PyLong_Type)) return IdType::integer;
    if (value.ptr() == reinterpret_cast<PyObject*>(&PyUnicode_Type)) return IdType::text;
    if (value.is(uuid_class())) return IdType::uuid;
    raise_config(where.str() + " is " + std::string(py::repr(value)) +
                 "; it takes int, str or uuid.UUID");
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
                      std::initializer_list<std::string_view> choices) {
    const std::string word = to_text(value, where);
    std::string known;
    std::size_t index = 0;
    for (const std::string_view choice : choices) {
        if (word == choice) return index;
        ++index;
        known += (known.empty() ? "'" : ", '") + std::string{choice} + "'";
    }
    raise_config(where.str() + " is " + std::string(py::repr(value)) + "; it takes " + known);
}

py::tuple to_elements(py::handle value, const Where& where, const char* expected) {
    const bool is_text = PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()) ||
                         PyByteArray_Check(value.ptr());
    if (is_text || Py_TYPE(value.ptr())->tp_iter == nullptr) {
        if (is_text || PySequence_Check(value.ptr()) == 0) raise_wrong_type(where, expected, value);
    }
    auto elements = py::reinterpret_steal<py::tuple>(PySequence_Tuple(value.ptr()));
    if (!elements) throw py::error_already_set();
    return elements;
}

std::vector<std::string_view> to_keys(const py::tuple& elements, const char* argument,
                                      Refusals& refusals) {
    const std::size_t size = elements.size();
    std::vector<std::string_view> keys(size);
    for (std::size_t i = 0; i < size; ++i) {
        PyObject* const element = PyTuple_GET_ITEM(elements.ptr(), static_cast<Py_ssize_t>(i));
        auto key = read_bytes(element, Where{argument, i});
        if (key) {
            keys[i] = *key;
        } else {
            refusals.add(i, std::move(key).error());
        }
    }
    return keys;
}

std::vector<std::int64_t> to_amounts(py::handle value, const char* argument, std::size_t size,
                                     std::int64_t missing, Refusals& refusals) {
    if (!value) return std::vector<std::int64_t>(size, missing);
    std::vector<std::int64_t> amounts;
    if (const Int64Buffer buffer{value}) {
        amounts = buffer.values();
    } else if (PyLong_Check(value.ptr()) || PyFloat_Check(value.ptr()) ||
               // A NumPy array claims __index__ too, whatever its size.
               (PyIndex_Check(value.ptr()) && PySequence_Check(value.ptr()) == 0)) {
        return std::vector<std::int64_t>(size, to_amount(value, argument));
    } else {
        const py::tuple elements = to_elements(value, argument, "int or a sequence of int");
        amounts.resize(elements.size());
        for (std::size_t i = 0; i < amounts.size(); ++i) {
            auto amount = read_integer(PyTuple_GET_ITEM(elements.ptr(), static_cast<Py_ssize_t>(i)),
                                       Where{argument, i}, ErrorCode::overflow);
            if (amount) {
                amounts[i] = *amount;
            } else {
                refusals.add(i, std::move(amount).error());
            }
        }
    }
    if (amounts.size() != size) {
        raise_config(std::string{argument} + " has " + std::to_string(amounts.size()) +
                     " elements for a batch of " + std::to_string(size));
    }
    return amounts;
}

std::vector<sql::Id> to_ids(py::handle value, IdType type, const char* argument,
                            Refusals& refusals) {
    std::vector<sql::Id> ids;
    if (type == IdType::integer) {
        if (const Int64Buffer buffer{value}) {
            const auto numbers = buffer.values();
            return {numbers.begin(), numbers.end()};
        }
    }
    const py::tuple elements = to_elements(value, argument, "a sequence of ids");
    ids.reserve(elements.size());
    for (std::size_t i = 0; i < elements.size(); ++i) {
        auto id = read_id(PyTuple_GET_ITEM(elements.ptr(), static_cast<Py_ssize_t>(i)), type,
                          Where{argument, i});
        if (!id) refusals.add(i, id.error());
        ids.push_back(id ? std::move(*id) : sql::Id{});
    }
    return ids;
}

}  // namespace hotcount::python
