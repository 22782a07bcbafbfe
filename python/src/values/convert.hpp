// Arguments from Python: what each accepts, and how it is refused.
//
// A value of a type that cannot fit is a builtin TypeError naming the argument (and the index in a
// batch), raised before anything is done. A value that is of the right type and still bad is an
// Error: raised by the to_... functions, kept by the read_... ones, because in a batch it concerns
// one element only.
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/sql/value.hpp>
#include <hotcount/result.hpp>
#include <hotcount/votes.hpp>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "errors.hpp"
#include "pybind.hpp"

namespace hotcount::python {

/// An argument's name for messages, with its index if it is an element of a batch.
struct Where {
    const char* argument;
    std::optional<std::size_t> index{};

    Where(const char* name) : argument(name) {}  // Implicit: a name alone is the usual case.
    Where(const char* name, std::size_t element) : argument(name), index(element) {}
    std::string str() const;
};

/// "str", "int", "numpy.int64": the type's name as its author wrote it.
std::string type_name(py::handle value);
/// TypeError: "{where} must be {expected}, not {type}".
[[noreturn]] void raise_wrong_type(const Where& where, const char* expected, py::handle value);
/// raise_wrong_type() for a key. If the key is an int, usually a row's id, the message says how to
/// write it.
[[noreturn]] void raise_wrong_key(const Where& where, const char* expected, py::handle value);

/// ConfigError: "{where} {says}", with the argument's name and, if it is given, the value.
[[noreturn]] void raise_bad(const Where& where, const std::string& says, py::handle value = {});

// -- text -------------------------------------------------------------------
// Views borrow from the Python object, which the caller keeps.

/// The bytes of a str that is all ASCII, as nearly all keys are. Null for any other object.
inline std::string_view ascii_of(PyObject* value) {
    if (!PyUnicode_CheckExact(value) || !PyUnicode_IS_COMPACT_ASCII(value)) return {};
    return {static_cast<const char*>(PyUnicode_DATA(value)),
            static_cast<std::size_t>(PyUnicode_GET_LENGTH(value))};
}
/// str (as UTF-8) or bytes.
Result<std::string_view> read_bytes(py::handle value, const Where& where);
/// str only.
Result<std::string_view> read_text(py::handle value, const Where& where);
std::string_view to_bytes(py::handle value, const Where& where);
std::string to_text(py::handle value, const Where& where);
/// One of the core's words. A URL there, because two arguments were swapped, is refused before the
/// core quotes it with its password.
std::string to_word(py::handle value, const Where& where);
/// repr() for messages; of a URL "***".
std::string quoted(py::handle value);

// -- numbers ----------------------------------------------------------------

/// int, or anything with __index__ (NumPy integers); never bool. Out of range: `out_of_range`.
Result<std::int64_t> read_integer(py::handle value, const Where& where, ErrorCode out_of_range);
/// An amount: out of 64 bits is a counter overflow.
std::int64_t to_amount(py::handle value, const Where& where);
/// An option: out of range is a config error.
std::int64_t to_option(py::handle value, const Where& where);
std::size_t to_size(py::handle value, const Where& where);
bool to_bool(py::handle value, const Where& where);

// -- times ------------------------------------------------------------------

/// Seconds as int or float, or a timedelta: more than 0, at most 100 years.
Duration to_duration(py::handle value, const Where& where);
/// to_duration() that takes 0 as well.
Duration to_delay(py::handle value, const Where& where);
double to_seconds(Duration duration);

// -- rows -------------------------------------------------------------------

/// int, str or uuid.UUID as the type; the class itself, not an instance.
IdType to_id_type(py::handle value, const Where& where);
Result<sql::Id> read_id(py::handle value, IdType type, const Where& where);
sql::Id to_id(py::handle value, IdType type, const Where& where);
py::object from_id(const sql::Id& id, IdType type);

// -- batches ----------------------------------------------------------------

/// One of several words, such as "raise" or "return"; another is a config error naming them.
std::size_t to_choice(py::handle value, const Where& where,
                      std::span<const std::string_view> choices);
inline std::size_t to_choice(py::handle value, const Where& where,
                             std::initializer_list<std::string_view> choices) {
    return to_choice(value, where, std::span{choices.begin(), choices.size()});
}
/// Refuses a way that only hotcount-load compares with; the error says where its code is.
void refuse_ways(py::handle value, const Where& where,
                 std::initializer_list<std::string_view> ways);

/// A batch's columns as read: elements that are refused already keep their place.
struct Refusals {
    std::map<std::size_t, Error> by_index;

    void add(std::size_t index, Error error) { by_index.emplace(index, std::move(error)); }
    /// Without the refused elements, for the core.
    template <class T>
    std::vector<T> strip(std::vector<T> all) const;
};

/// TypeError for a masked NumPy array: its buffer, and the number of one without dimensions, is
/// also what the mask hides.
void refuse_masked(py::handle value, const Where& where);

/// The elements of a sequence, held, so that they outlive what another thread does to it. A single
/// str or bytes is refused: it is a sequence of the wrong things. A config error if an iterable
/// other than a list or a tuple has more than 2^24 elements.
py::tuple to_elements(py::handle value, const Where& where, const char* expected);

/// The objects that the keys of a batch point into. It outlives the keys.
struct KeyHolder {
    py::object elements;
    std::string text;
};

/// Sequence of str or bytes; or an array of NumPy's 'U' or 'S', read without making an object of
/// each: any stride and byte order, NULs at an element's end dropped as NumPy does.
std::vector<std::string_view> to_keys(py::handle value, const char* argument, KeyHolder& held,
                                      Refusals& refusals);
/// One int for all, or one each: a sequence, or a buffer of any integers of 1 to 8 bytes (NumPy,
/// array, memoryview). A value beyond 64 bits refuses its element with `out_of_range`.
std::vector<std::int64_t> to_amounts(py::handle value, const char* argument, std::size_t size,
                                     std::int64_t missing, Refusals& refusals,
                                     ErrorCode out_of_range = ErrorCode::overflow);
/// Sequence of ids, or such a buffer if ids are integers.
std::vector<sql::Id> to_ids(py::handle value, IdType type, const char* argument,
                            Refusals& refusals);

template <class T>
std::vector<T> Refusals::strip(std::vector<T> all) const {
    if (by_index.empty()) return all;
    std::vector<T> kept;
    kept.reserve(all.size() - by_index.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
        if (!by_index.contains(i)) kept.push_back(std::move(all[i]));
    }
    return kept;
}

// -- columns of a batch that belong together: keys and their numbers, items and their users --------

/// dict, and what else is a collections.abc.Mapping.
bool is_mapping(py::handle value);
/// TypeError for a set, whose elements have no order that another column could follow.
void require_order(py::handle value, const Where& where);

/// The keys of a batch and their numbers: the keys and values of a mapping, with which `numbers` is
/// a TypeError; else both arguments as they are, `numbers` null if missing.
struct KeysAndNumbers {
    py::object keys;
    py::object numbers;
};
KeysAndNumbers to_keys_and_numbers(py::handle keys, const char* keys_name, py::handle numbers,
                                   const char* numbers_name);

}  // namespace hotcount::python
