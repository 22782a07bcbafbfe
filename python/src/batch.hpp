// What a batch call returns: a Python Sequence whose columns NumPy takes without copying.
//
//   Column       a strided view of int64, int8, bool or float64 over memory that is kept alive
//   Int64Batch   a Column of int64 with the errors by index
//   RowBatch<R>  rows of R with the errors by index; each member is a Column over them
//
// All are immutable. Errors are kept as Python exceptions, so this needs the GIL.
#pragma once

#include <pybind11/pybind11.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <hotcount/base/column.hpp>
#include <hotcount/base/result.hpp>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convert.hpp"
#include "errors.hpp"

namespace hotcount::python {

namespace py = pybind11;

/// What Python gets for a T: table.hpp. Here for the rows of batches.
template <class T>
struct To;

/// A row that Python declares as a result (result.hpp).
template <class Row>
concept DeclaredRow = requires(const Row& row) {
    { To<Row>::make(row) } -> std::same_as<py::object>;
};

enum class ColumnType : std::uint8_t { int64, boolean, float64, int8 };

template <class T>
constexpr ColumnType column_type() {
    if constexpr (std::is_same_v<T, bool>) return ColumnType::boolean;
    if constexpr (std::is_same_v<T, std::int64_t>) return ColumnType::int64;
    if constexpr (std::is_same_v<T, double>) return ColumnType::float64;
    if constexpr (std::is_same_v<T, std::int8_t>) return ColumnType::int8;
}

class Column {
  public:
    Column(std::shared_ptr<const void> owner, const void* first, std::size_t size,
           std::ptrdiff_t stride, ColumnType type)
        : owner_(std::move(owner)),
          first_(static_cast<const char*>(first)),
          size_(size),
          stride_(stride),
          type_(type) {}

    std::size_t size() const { return size_; }
    ColumnType type() const { return type_; }
    py::object item(std::size_t index) const;
    Column slice(std::size_t start, std::ptrdiff_t step, std::size_t size) const;
    py::buffer_info buffer() const;
    /// The elements, packed: what a pickle carries.
    py::bytes packed() const;

  private:
    const char* at(std::size_t index) const {
        return first_ + static_cast<std::ptrdiff_t>(index) * stride_;
    }

    std::shared_ptr<const void> owner_;
    const char* first_;
    std::size_t size_;
    std::ptrdiff_t stride_;  // In bytes; negative in a reversed slice.
    ColumnType type_;
};

/// A dict, with the annotation that stubs show for it.
class ErrorDict : public py::dict {
  public:
    PYBIND11_OBJECT(ErrorDict, py::dict, PyDict_Check)
};

/// The errors of the elements that a slice takes, by their new index.
py::dict slice_errors(const py::dict& errors, std::size_t start, std::ptrdiff_t step,
                      std::size_t size);

class Int64Batch : public Column {
  public:
    Int64Batch(std::vector<std::int64_t> values, py::dict errors);

    const py::dict& errors() const { return errors_; }
    Int64Batch slice(std::size_t start, std::ptrdiff_t step, std::size_t size) const {
        return {Column::slice(start, step, size), slice_errors(errors_, start, step, size)};
    }

  private:
    Int64Batch(Column column, py::dict errors)
        : Column(std::move(column)), errors_(std::move(errors)) {}

    py::dict errors_;
};

template <class Row>
class RowBatch {
  public:
    RowBatch(std::vector<Row> rows, py::dict errors)
        : rows_(std::make_shared<const std::vector<Row>>(std::move(rows))),
          size_(rows_->size()),
          errors_(std::move(errors)) {}

    std::size_t size() const { return size_; }
    py::object item(std::size_t index) const {
        if constexpr (DeclaredRow<Row>) {
            return To<Row>::make(at(index));
        } else {
            return py::cast(at(index));
        }
    }
    const py::dict& errors() const { return errors_; }

    RowBatch slice(std::size_t start, std::ptrdiff_t step, std::size_t size) const {
        RowBatch part = *this;
        part.start_ = start_ + static_cast<std::ptrdiff_t>(start) * step_;
        part.step_ = step_ * step;
        part.size_ = size;
        part.errors_ = slice_errors(errors_, start, step, size);
        return part;
    }

    template <class T>
    Column column(T Row::*member) const {
        static const T nothing{};
        const void* const first = size_ == 0 ? &nothing : &(at(0).*member);
        return Column{rows_, first, size_, step_ * static_cast<std::ptrdiff_t>(sizeof(Row)),
                      column_type<T>()};
    }

  private:
    const Row& at(std::size_t index) const {
        return (
            *rows_)[static_cast<std::size_t>(start_ + static_cast<std::ptrdiff_t>(index) * step_)];
    }

    std::shared_ptr<const std::vector<Row>> rows_;
    std::ptrdiff_t start_{0};
    std::ptrdiff_t step_{1};
    std::size_t size_;
    py::dict errors_;
};

/// Puts the core's results (of the elements that were not refused) back at their index; a failed
/// element gets a `T{}` in the column and its error in `errors`.
template <class T>
std::vector<T> gather(std::vector<Result<T>> results, const Refusals& refusals, py::dict& errors) {
    std::vector<T> values(results.size() + refusals.by_index.size());
    // Nothing refused: no look-up for each element.
    if (refusals.by_index.empty()) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (results[i].ok()) [[likely]] {
                values[i] = std::move(*results[i]);
            } else {
                errors[py::int_(i)] = to_exception(results[i].error());
            }
        }
        return values;
    }
    auto result = results.begin();
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (const auto refused = refusals.by_index.find(i); refused != refusals.by_index.end()) {
            errors[py::int_(i)] = to_exception(refused->second);
            continue;
        }
        if (result->ok()) {
            values[i] = std::move(*result).value();
        } else {
            errors[py::int_(i)] = to_exception(result->error());
        }
        ++result;
    }
    return values;
}

/// The same from a column of the core.
template <class T>
std::vector<T> gather(hotcount::Column<T> column, const Refusals& refusals, py::dict& errors) {
    if (column.errors.empty() && refusals.by_index.empty()) return std::move(column.values);
    std::vector<T> values(column.values.size() + refusals.by_index.size());
    std::size_t next = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (const auto refused = refusals.by_index.find(i); refused != refusals.by_index.end()) {
            errors[py::int_(i)] = to_exception(refused->second);
            continue;
        }
        values[i] = std::move(column.values[next]);
        if (const auto failed = column.errors.find(next); failed != column.errors.end()) {
            errors[py::int_(i)] = to_exception(failed->second);
        }
        ++next;
    }
    return values;
}

/// What a batch call does with failed elements: errors="raise" or "return".
enum class OnErrors : std::uint8_t { raise, keep };
OnErrors to_on_errors(py::handle value);

/// The batch as a Python object, or BatchError where elements failed and the caller wants that.
template <class Batch>
py::object finish(Batch batch, OnErrors on_errors) {
    const py::dict errors = batch.errors();
    const std::size_t size = batch.size();
    py::object result = py::cast(std::move(batch));
    if (!errors.empty() && on_errors == OnErrors::raise) raise_batch(result, errors, size);
    return result;
}

// -- binding ----------------------------------------------------------------

namespace detail {

inline py::list to_list(const auto& self) {
    py::list items(self.size());
    for (std::size_t i = 0; i < self.size(); ++i) items[i] = self.item(i);
    return items;
}

/// "[1, 2, 3]", or "[1, 2, ..., 9]" where it is long.
std::string shown(std::size_t size, const std::function<py::object(std::size_t)>& item);

}  // namespace detail

/// The whole Sequence protocol, comparison and repr, for anything with size, item and slice.
template <class T, class... Extra>
void define_sequence(py::class_<T, Extra...>& cls, const std::string& name,
                     const std::string& element) {
    py::options plain;
    plain.disable_function_signatures();
    const auto doc = [](const std::string& text) { return (new std::string(text))->c_str(); };

    cls.def("__len__", &T::size, "__len__(self) -> int");
    cls.def(
        "__getitem__",
        [](const T& self, const py::object& key) -> py::object {
            const auto size = static_cast<py::ssize_t>(self.size());
            if (PySlice_Check(key.ptr())) {
                py::ssize_t start = 0;
                py::ssize_t stop = 0;
                py::ssize_t step = 0;
                if (PySlice_Unpack(key.ptr(), &start, &stop, &step) != 0) {
                    throw py::error_already_set();
                }
                const py::ssize_t count = PySlice_AdjustIndices(size, &start, &stop, step);
                return py::cast(self.slice(static_cast<std::size_t>(start), step,
                                           static_cast<std::size_t>(count)));
            }
            if (!PyIndex_Check(key.ptr())) raise_wrong_type("index", "int or slice", key);
            py::ssize_t index = PyNumber_AsSsize_t(key.ptr(), PyExc_IndexError);
            if (index == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
            if (index < 0) index += size;
            if (index < 0 || index >= size) throw py::index_error("index out of range");
            return self.item(static_cast<std::size_t>(index));
        },
        // As pybind11 writes the docstring of overloads, for stubgen to read.
        doc("__getitem__(*args, **kwargs)\nOverloaded function.\n\n1. __getitem__(self, index: int)"
            " -> " +
            element + "\n\n2. __getitem__(self, index: slice) -> hotcount._core." + name));
    cls.def(
        "__iter__", [](const T& self) -> py::object { return py::iter(detail::to_list(self)); },
        doc("__iter__(self) -> collections.abc.Iterator[" + element + "]"));
    cls.def(
        "__reversed__",
        [](const T& self) -> py::object {
            py::list items = detail::to_list(self);
            items.attr("reverse")();
            return py::iter(items);
        },
        doc("__reversed__(self) -> collections.abc.Iterator[" + element + "]"));
    cls.def(
        "__contains__",
        [](const T& self, const py::object& value) {
            return detail::to_list(self).contains(value);
        },
        "__contains__(self, value: object) -> bool");
    cls.def(
        "index",
        [](const T& self, const py::object& value, const py::args& range) -> py::object {
            return detail::to_list(self).attr("index")(value, *range);
        },
        "index(self, value: object, start: int = 0, stop: int = ...) -> int\n\n"
        "The first index of a value; ValueError where it is not there.");
    cls.def(
        "count",
        [](const T& self, const py::object& value) -> py::object {
            return detail::to_list(self).attr("count")(value);
        },
        "count(self, value: object) -> int\n\nHow often a value is there.");
    cls.def(
        "__eq__",
        [](const T& self, const py::object& other) -> py::object {
            py::list mine = detail::to_list(self);
            if (py::isinstance<T>(other)) {
                return py::bool_(mine.equal(detail::to_list(other.cast<const T&>())));
            }
            if (py::isinstance<py::list>(other)) return py::bool_(mine.equal(other));
            if (py::isinstance<py::tuple>(other)) return py::bool_(mine.equal(py::list(other)));
            return py::reinterpret_borrow<py::object>(Py_NotImplemented);
        },
        "__eq__(self, other: object) -> bool");
    // Equal to a list, so as little hashable as one.
    cls.attr("__hash__") = py::none();
    cls.def(
        "__repr__",
        [name](const T& self) {
            std::string text = name + "(" + detail::shown(self.size(), [&](std::size_t i) {
                                   return self.item(i);
                               });
            if constexpr (requires { self.errors(); }) {
                if (!self.errors().empty()) {
                    text += ", errors=" + std::string(py::repr(self.errors()));
                }
            }
            return text + ")";
        },
        "__repr__(self) -> str");
    // isinstance(batch, Sequence), and `match` statements take it as one.
    py::module_::import("collections.abc").attr("Sequence").attr("register")(cls);
}

template <class T, class... Extra>
void define_errors(py::class_<T, Extra...>& cls) {
    cls.def_property_readonly(
        "errors", [](const T& self) { return ErrorDict(self.errors()); },
        "The exceptions of failed elements, by index; empty where all succeeded.");
}

}  // namespace hotcount::python

template <>
struct pybind11::detail::handle_type_name<hotcount::python::ErrorDict> {
    static constexpr auto name = const_name("dict[int, hotcount.errors.HotcountError]");
};
