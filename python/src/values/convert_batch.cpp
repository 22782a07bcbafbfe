// Columns of a batch: sequences, and buffers that can be read without an object for each element.
// All is copied or held, because the GIL is released before the core reads it.
#include <algorithm>
#include <bit>
#include <cstring>

#include "convert.hpp"
#include "gil.hpp"

namespace hotcount::python {
namespace {

// A buffer (NumPy, array, memoryview) with its format taken apart: "<5w" is five 'w'.
class Buffer {
  public:
    explicit Buffer(py::handle value) {
        // A single text is no column, whatever numbers it is made of.
        if (!PyObject_CheckBuffer(value.ptr()) || PyBytes_Check(value.ptr()) ||
            PyByteArray_Check(value.ptr())) {
            return;
        }
        if (PyObject_GetBuffer(value.ptr(), &view_, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
            // Of another kind, such as NumPy's StringDType: read as a sequence.
            if (PyErr_ExceptionMatches(PyExc_BufferError) == 0 &&
                PyErr_ExceptionMatches(PyExc_ValueError) == 0) {
                throw py::error_already_set();
            }
            PyErr_Clear();
            return;
        }
        held_ = true;
        std::string_view format = view_.format == nullptr ? "B" : view_.format;
        constexpr std::string_view kForeign =
            std::endian::native == std::endian::little ? ">!" : "<";
        if (!format.empty() && std::string_view{"@=<>!"}.find(format.front()) != format.npos) {
            foreign_ = kForeign.find(format.front()) != kForeign.npos;
            format.remove_prefix(1);
        }
        while (!format.empty() && format.front() >= '0' && format.front() <= '9') {
            counted_ = true;
            format.remove_prefix(1);
        }
        if (format.size() == 1) code_ = format.front();
        // Asked for, and ctypes does not say it all the same.
        stride_ = view_.ndim == 1 && view_.strides != nullptr ? view_.strides[0] : view_.itemsize;
    }
    Buffer(const Buffer&) = delete;
    Buffer& operator=(const Buffer&) = delete;
    ~Buffer() {
        if (held_) PyBuffer_Release(&view_);
    }

    void check_shape(const char* argument) const {
        if (!held_ || view_.ndim == 1) return;
        raise_type(std::string{argument} + " must be one-dimensional, not an array of " +
                   std::to_string(view_.ndim) + " dimensions");
    }
    bool is_integers() const {
        const auto bytes = static_cast<std::size_t>(view_.itemsize);
        return is_column() && !counted_ && bytes <= 8 && std::has_single_bit(bytes) &&
               (is_signed() || std::string_view{"BHILQN"}.find(code_) != std::string_view::npos);
    }
    bool is_signed() const {
        return code_ != 0 && std::string_view{"bhilqn"}.find(code_) != std::string_view::npos;
    }
    bool is_text() const { return is_column() && code_ == 'w' && view_.itemsize % 4 == 0; }
    bool is_bytes() const { return is_column() && code_ == 's'; }
    bool is_foreign() const { return foreign_; }

    std::size_t size() const { return static_cast<std::size_t>(view_.shape[0]); }
    std::size_t element_bytes() const { return static_cast<std::size_t>(view_.itemsize); }
    bool is_packed() const { return stride_ == view_.itemsize; }
    const char* at(std::size_t index) const {
        return static_cast<const char*>(view_.buf) + static_cast<Py_ssize_t>(index) * stride_;
    }

  private:
    bool is_column() const { return held_ && view_.ndim == 1 && view_.shape != nullptr; }

    Py_buffer view_{};
    bool held_{false};
    bool foreign_{false};  // The elements have the other byte order.
    bool counted_{false};  // An element is several of the code.
    char code_{0};
    Py_ssize_t stride_{0};
};

// An unaligned number, of either byte order.
template <class T>
T load(const char* from, bool foreign) {
    T number;
    std::memcpy(&number, from, sizeof(T));
    if (foreign) {
        char bytes[sizeof(T)];
        std::reverse_copy(from, from + sizeof(T), bytes);
        std::memcpy(&number, bytes, sizeof(T));
    }
    return number;
}

template <class T>
void read_integers(const Buffer& buffer, const char* argument, ErrorCode out_of_range,
                   std::vector<std::int64_t>& numbers, Refusals& refusals) {
    for (std::size_t i = 0; i < numbers.size(); ++i) {
        const T number = load<T>(buffer.at(i), buffer.is_foreign());
        numbers[i] = static_cast<std::int64_t>(number);
        if (std::is_same_v<T, std::uint64_t> && numbers[i] < 0) {
            numbers[i] = 0;
            refusals.add(i, make_error(out_of_range, Where{argument, i}.str() +
                                                         " does not fit in signed 64 bits"));
        }
    }
}

std::vector<std::int64_t> integers(const Buffer& buffer, const char* argument,
                                   ErrorCode out_of_range, Refusals& refusals) {
    std::vector<std::int64_t> numbers(buffer.size());
    const auto read = [&]<class Signed, class Unsigned>() {
        if (buffer.is_signed()) {
            read_integers<Signed>(buffer, argument, out_of_range, numbers, refusals);
        } else {
            read_integers<Unsigned>(buffer, argument, out_of_range, numbers, refusals);
        }
    };
    switch (buffer.element_bytes()) {
        case 1:
            read.operator()<std::int8_t, std::uint8_t>();
            break;
        case 2:
            read.operator()<std::int16_t, std::uint16_t>();
            break;
        case 4:
            read.operator()<std::int32_t, std::uint32_t>();
            break;
        default:
            if (buffer.is_signed() && buffer.is_packed() && !buffer.is_foreign()) {
                if (numbers.empty()) break;
                std::memcpy(numbers.data(), buffer.at(0), numbers.size() * sizeof(std::int64_t));
            } else {
                read.operator()<std::int64_t, std::uint64_t>();
            }
    }
    return numbers;
}

// Writes an element of 'U' as UTF-8, at most 4 bytes for a character; returns its end, or null with
// what is wrong with it.
char* write_utf8(char* to, const char* from, std::size_t size, bool foreign, const char*& wrong) {
    const auto at = [&](std::size_t i) { return load<std::uint32_t>(from + 4 * i, foreign); };
    while (size > 0 && at(size - 1) == 0) --size;
    for (std::size_t i = 0; i < size; ++i) {
        const std::uint32_t code = at(i);
        const auto tail = [&](unsigned shift) {
            *to++ = static_cast<char>(0x80 | ((code >> shift) & 0x3f));
        };
        if (code < 0x80) [[likely]] {
            *to++ = static_cast<char>(code);
        } else if (code < 0x800) {
            *to++ = static_cast<char>(0xc0 | (code >> 6));
            tail(0);
        } else if (code < 0x10000) {
            if (code >= 0xd800 && code < 0xe000) {
                wrong = "a lone surrogate";
                return nullptr;
            }
            *to++ = static_cast<char>(0xe0 | (code >> 12));
            tail(6);
            tail(0);
        } else if (code < 0x110000) {
            *to++ = static_cast<char>(0xf0 | (code >> 18));
            tail(12);
            tail(6);
            tail(0);
        } else {
            wrong = "a code beyond U+10FFFF";
            return nullptr;
        }
    }
    return to;
}

std::vector<std::string_view> keys_of_array(const Buffer& buffer, const char* argument,
                                            std::string& text, Refusals& refusals) {
    const std::size_t size = buffer.size();
    std::vector<std::size_t> ends(size);
    std::string scratch(buffer.element_bytes(), '\0');
    for (std::size_t i = 0; i < size; ++i) {
        const char* const from = buffer.at(i);
        if (buffer.is_text()) {
            const char* wrong = nullptr;
            const char* const end = write_utf8(scratch.data(), from, buffer.element_bytes() / 4,
                                               buffer.is_foreign(), wrong);
            if (end != nullptr) {
                text.append(scratch.data(), static_cast<std::size_t>(end - scratch.data()));
            } else {
                refusals.add(
                    i, make_error(ErrorCode::config, Where{argument, i}.str() + " has " + wrong +
                                                         ", which UTF-8 cannot hold"));
            }
        } else {
            std::string_view bytes{from, buffer.element_bytes()};
            while (!bytes.empty() && bytes.back() == '\0') bytes.remove_suffix(1);
            text += bytes;
        }
        ends[i] = text.size();
    }
    // Only now: text has moved while it grew.
    std::vector<std::string_view> keys(size);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < size; ++i) {
        keys[i] = std::string_view{text}.substr(begin, ends[i] - begin);
        begin = ends[i];
    }
    return keys;
}

py::object borrowed(py::handle value) { return py::reinterpret_borrow<py::object>(value); }

// The most elements that are taken from an iterable other than a list or a tuple: it may have no
// end.
constexpr std::size_t kMostElements = std::size_t{1} << 24;
constexpr std::size_t kElementsPerLook = 4096;

[[noreturn]] void raise_too_many(const Where& where) {
    raise_config(where.str() + " has more than " + std::to_string(kMostElements) +
                 " elements: hand it over in parts, or as a list");
}

// Like tuple(value). But tuple() makes room for whatever __len__ says, hears no Ctrl-C meanwhile,
// and takes all memory if the iterator does not end.
py::tuple take_all(py::handle value, const Where& where) {
    if (PyList_CheckExact(value.ptr()) || PyTuple_CheckExact(value.ptr())) {
        auto all = py::reinterpret_steal<py::tuple>(PySequence_Tuple(value.ptr()));
        if (!all) throw py::error_already_set();
        return all;
    }
    if (PyRange_Check(value.ptr())) {
        const Py_ssize_t size = PyObject_Size(value.ptr());
        if (size < 0) PyErr_Clear();  // More than fits.
        if (size < 0 || static_cast<std::size_t>(size) > kMostElements) raise_too_many(where);
    }
    const auto iterator = py::reinterpret_steal<py::object>(PyObject_GetIter(value.ptr()));
    if (!iterator) throw py::error_already_set();
    py::list taken;
    for (std::size_t size = 0;; ++size) {
        const auto element = py::reinterpret_steal<py::object>(PyIter_Next(iterator.ptr()));
        if (!element) break;
        if (size == kMostElements) raise_too_many(where);
        if (PyList_Append(taken.ptr(), element.ptr()) != 0) throw py::error_already_set();
        if (size % kElementsPerLook == kElementsPerLook - 1 && PyErr_CheckSignals() != 0) {
            throw py::error_already_set();
        }
    }
    if (PyErr_Occurred() != nullptr) throw py::error_already_set();
    auto all = py::reinterpret_steal<py::tuple>(PyList_AsTuple(taken.ptr()));
    if (!all) throw py::error_already_set();
    return all;
}

}  // namespace

void refuse_masked(py::handle value, const Where& where) {
    // Of nearly all values the type alone says that it is none.
    const bool may_be_array = PyType_HasFeature(Py_TYPE(value.ptr()), Py_TPFLAGS_HEAPTYPE) != 0 &&
                              PyObject_CheckBuffer(value.ptr()) != 0;
    if (!may_be_array) return;
    PyObject* const module = PyDict_GetItemString(PyImport_GetModuleDict(), "numpy.ma");
    if (module == nullptr) return;
    const py::object type = py::handle(module).attr("MaskedArray");
    if (!py::isinstance(value, type)) return;
    raise_type(
        where.str() +
        " is a masked array: pass its compressed(), which leaves out what the mask hides, or "
        "its filled(...), which says what that counts as");
}

bool is_mapping(py::handle value) {
    PyObject* const object = value.ptr();
    if (PyDict_Check(object)) return true;
    // Nearly all batches are one of these: no question to an abstract class is needed.
    if (PyList_Check(object) || PyTuple_Check(object) || PyUnicode_Check(object) ||
        PyBytes_Check(object)) {
        return false;
    }
    const auto& type = made_once<py::object>(
        [] { return py::object(import_module("collections.abc").attr("Mapping")); });
    return py::isinstance(value, type);
}

void require_order(py::handle value, const Where& where) {
    if (value && PyAnySet_Check(value.ptr()))
        raise_wrong_type(where, "a sequence, in an order", value);
}

KeysAndNumbers to_keys_and_numbers(py::handle keys, const char* keys_name, py::handle numbers,
                                   const char* numbers_name) {
    if (!is_mapping(keys)) {
        if (numbers && !PyLong_Check(numbers.ptr())) require_order(keys, keys_name);
        return {borrowed(keys), borrowed(numbers)};
    }
    if (numbers) {
        raise_type(std::string{numbers_name} + " must not be given where " + keys_name +
                   " is a mapping, which has its own");
    }
    const py::tuple items = take_all(keys.attr("items")(), keys_name);
    py::tuple names(items.size());
    py::tuple values(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
        const py::object item = items[i];
        if (!PyTuple_Check(item.ptr()) || PyTuple_GET_SIZE(item.ptr()) != 2) {
            raise_wrong_type(Where{keys_name, i}, "a pair of key and number", item);
        }
        names[i] = borrowed(PyTuple_GET_ITEM(item.ptr(), 0));
        values[i] = borrowed(PyTuple_GET_ITEM(item.ptr(), 1));
    }
    return {std::move(names), std::move(values)};
}

py::tuple to_elements(py::handle value, const Where& where, const char* expected) {
    refuse_masked(value, where);
    const bool is_text = PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr()) ||
                         PyByteArray_Check(value.ptr());
    if (is_text || Py_TYPE(value.ptr())->tp_iter == nullptr) {
        if (is_text || PySequence_Check(value.ptr()) == 0) raise_wrong_type(where, expected, value);
    }
    if (is_mapping(value)) raise_wrong_type(where, expected, value);
    return take_all(value, where);
}

std::vector<std::string_view> to_keys(py::handle value, const char* argument, KeyHolder& held,
                                      Refusals& refusals) {
    constexpr const char* kExpected = "a sequence of str or bytes";
    if (!PyList_CheckExact(value.ptr()) && !PyTuple_CheckExact(value.ptr())) {
        refuse_masked(value, argument);
        const Buffer buffer{value};
        buffer.check_shape(argument);
        if (buffer.is_text() || buffer.is_bytes()) {
            return keys_of_array(buffer, argument, held.text, refusals);
        }
    }
    held.elements = to_elements(value, argument, kExpected);
    PyObject* const elements = held.elements.ptr();
    const auto size = static_cast<std::size_t>(PyTuple_GET_SIZE(elements));
    std::vector<std::string_view> keys(size);
    for (std::size_t i = 0; i < size; ++i) {
        PyObject* const element = PyTuple_GET_ITEM(elements, static_cast<Py_ssize_t>(i));
        keys[i] = ascii_of(element);
        if (keys[i].data() != nullptr) [[likely]]
            continue;
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
                                     std::int64_t missing, Refusals& refusals,
                                     ErrorCode out_of_range) {
    constexpr const char* kExpected = "int or a sequence of int";
    if (!value) return std::vector<std::int64_t>(size, missing);
    if (PyLong_Check(value.ptr()) || PyFloat_Check(value.ptr()) ||
        // A NumPy array claims __index__ too, whatever its size.
        (PyIndex_Check(value.ptr()) && PySequence_Check(value.ptr()) == 0)) {
        return std::vector<std::int64_t>(size, unwrap(read_integer(value, argument, out_of_range)));
    }
    require_order(value, argument);
    refuse_masked(value, argument);
    std::vector<std::int64_t> amounts;
    const Buffer buffer{value};
    buffer.check_shape(argument);
    if (buffer.is_integers()) {
        amounts = integers(buffer, argument, out_of_range, refusals);
    } else {
        const py::tuple elements = to_elements(value, argument, kExpected);
        amounts.resize(elements.size());
        for (std::size_t i = 0; i < amounts.size(); ++i) {
            PyObject* const element = PyTuple_GET_ITEM(elements.ptr(), static_cast<Py_ssize_t>(i));
            auto amount = read_integer(element, Where{argument, i}, out_of_range);
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
    refuse_masked(value, argument);
    if (type == IdType::integer) {
        if (const Buffer buffer{value}; buffer.is_integers()) {
            const auto numbers = integers(buffer, argument, ErrorCode::config, refusals);
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
