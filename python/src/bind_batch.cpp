#include <array>
#include <cstring>

#include "batch.hpp"
#include "bind.hpp"
#include "function.hpp"

namespace hotcount::python {
namespace {

struct TypeInfo {
    // 'l', not 'q': NumPy has two 64-bit integers here and calls the former int64.
    const char* format;
    std::size_t size;
};
static_assert(sizeof(long) == sizeof(std::int64_t));

constexpr TypeInfo info(ColumnType type) {
    switch (type) {
        case ColumnType::int64:
            return {"l", sizeof(std::int64_t)};
        case ColumnType::boolean:
            return {"?", sizeof(bool)};
        case ColumnType::float64:
            return {"d", sizeof(double)};
        case ColumnType::int8:
            return {"b", sizeof(std::int8_t)};
    }
    return {"", 0};
}

template <class T>
T load(const char* from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

std::vector<std::int64_t> to_values(const py::object& values) {
    Refusals refusals;
    const py::tuple elements = to_elements(values, "values", "a sequence of int");
    auto numbers = to_amounts(elements, "values", elements.size(), 0, refusals);
    if (!refusals.by_index.empty()) raise(refusals.by_index.begin()->second);
    return numbers;
}

Column unpack_column(const Arguments& arguments) {
    const std::string format = to_text(arguments[0], "format");
    if (!py::isinstance<py::bytes>(arguments[1])) raise_wrong_type("data", "bytes", arguments[1]);
    const auto data = std::make_shared<const std::string>(py::cast<std::string>(arguments[1]));
    for (const auto type :
         {ColumnType::int64, ColumnType::boolean, ColumnType::float64, ColumnType::int8}) {
        const auto [known, size] = info(type);
        if (format != known) continue;
        if (data->size() % size != 0) raise_config("data is not a whole number of elements");
        return Column{data, data->data(), data->size() / size, static_cast<std::ptrdiff_t>(size),
                      type};
    }
    raise_config("format is '" + format + "'; it takes 'l', '?', 'd', 'b'");
}

Int64Batch make_batch(const Arguments& arguments) {
    py::dict errors;
    if (arguments.given(1)) {
        if (!py::isinstance<py::dict>(arguments[1])) {
            raise_wrong_type("errors", "dict", arguments[1]);
        }
        errors = py::dict(py::reinterpret_borrow<py::dict>(arguments[1]));
    }
    return {to_values(py::reinterpret_borrow<py::object>(arguments[0])), std::move(errors)};
}

py::object column_reduce(Column& self, const Arguments&) {
    return py::make_tuple(py::type::of<Column>(),
                          py::make_tuple(info(self.type()).format, self.packed()));
}

py::object int64_batch_reduce(Int64Batch& self, const Arguments&) {
    return py::make_tuple(py::type::of<Int64Batch>(),
                          py::make_tuple(detail::to_list(self), self.errors()));
}

}  // namespace

py::object Column::item(std::size_t index) const {
    switch (type_) {
        case ColumnType::int64:
            return py::int_(load<std::int64_t>(at(index)));
        case ColumnType::boolean:
            return py::bool_(load<bool>(at(index)));
        case ColumnType::float64:
            return py::float_(load<double>(at(index)));
        case ColumnType::int8:
            return py::int_(load<std::int8_t>(at(index)));
    }
    return py::none();
}

Column Column::slice(std::size_t start, std::ptrdiff_t step, std::size_t size) const {
    return Column{owner_, size == 0 ? first_ : at(start), size, stride_ * step, type_};
}

py::buffer_info Column::buffer() const {
    const auto [format, size] = info(type_);
    return py::buffer_info(const_cast<char*>(first_), static_cast<py::ssize_t>(size), format, 1,
                           {static_cast<py::ssize_t>(size_)}, {stride_}, /*readonly=*/true);
}

py::bytes Column::packed() const {
    const std::size_t element = info(type_).size;
    std::string bytes(size_ * element, '\0');
    for (std::size_t i = 0; i < size_; ++i) {
        std::memcpy(bytes.data() + i * element, at(i), element);
    }
    return py::bytes(bytes);
}

py::dict slice_errors(const py::dict& errors, std::size_t start, std::ptrdiff_t step,
                      std::size_t size) {
    py::dict kept;
    if (errors.empty()) return kept;
    for (std::size_t i = 0; i < size; ++i) {
        const py::int_ old{static_cast<std::ptrdiff_t>(start) +
                           static_cast<std::ptrdiff_t>(i) * step};
        if (errors.contains(old)) kept[py::int_(i)] = errors[old];
    }
    return kept;
}

Int64Batch::Int64Batch(std::vector<std::int64_t> values, py::dict errors)
    : Column([&] {
          auto held = std::make_shared<const std::vector<std::int64_t>>(std::move(values));
          static const std::int64_t nothing{};
          const auto* const first = held->empty() ? &nothing : held->data();
          const std::size_t size = held->size();
          return Column{std::move(held), first, size, sizeof(std::int64_t), ColumnType::int64};
      }()),
      errors_(std::move(errors)) {}

OnErrors to_on_errors(py::handle value) {
    if (!value) return OnErrors::raise;
    return to_choice(value, "errors", {"raise", "return"}) == 0 ? OnErrors::raise : OnErrors::keep;
}

std::string detail::shown(std::size_t size, const std::function<py::object(std::size_t)>& item) {
    constexpr std::size_t kShown = 10;
    std::string text = "[";
    for (std::size_t i = 0; i < size; ++i) {
        if (i > 0) text += ", ";
        if (size > kShown && i == kShown - 1) {
            text += "..., ";
            i = size - 1;
        }
        text += std::string(py::repr(item(i)));
    }
    text += "]";
    if (size > kShown) text += ", " + std::to_string(size) + " elements";
    return text;
}

void bind_batch(py::module_& module) {
    py::class_<Column> column(
        module, "Column", py::buffer_protocol(),
        "One column of a batch: a Sequence of int, bool or float.\n\n"
        "Immutable. NumPy takes it without copying: numpy.asarray(column) is an int64, int8, bool\n"
        "or float64 array over the same memory, and keeps it alive.");
    define_init<&unpack_column>(
        column, "(self, format: str, data: bytes) -> None",
        "From packed elements, as pickle does: format 'l', '?', 'd' or 'b'.");
    column.def_buffer([](const Column& self) { return self.buffer(); });
    define_sequence(column, "Column", "typing.Any");
    define<&column_reduce>(column, "__reduce__", "(self) -> tuple[typing.Any, ...]", "For pickle.");

    py::class_<Int64Batch, Column> int64_batch(
        module, "Int64Batch", py::buffer_protocol(),
        "What a batch call answered: one int per element, in the order given.\n\n"
        "An immutable Sequence[int]; numpy.asarray(batch) is an int64 array over the same memory.\n"
        "A failed element is 0 here and has its exception in .errors, by index.\n"
        "Equal to a list or tuple of the same numbers.");
    define_init<&make_batch>(
        int64_batch,
        "(self, values: collections.abc.Sequence[int], "
        "errors: dict[int, hotcount.errors.HotcountError] | None = None) -> None",
        "A batch of these values, for tests and pickle.");
    int64_batch.def_buffer([](const Int64Batch& self) { return self.buffer(); });
    define_sequence(int64_batch, "Int64Batch", "int");
    define<&int64_batch_reduce>(int64_batch, "__reduce__", "(self) -> tuple[typing.Any, ...]",
                                "For pickle.");
    define_errors(int64_batch);
}

}  // namespace hotcount::python
