#include "batch.hpp"

#include <array>
#include <cstring>

#include "native.hpp"
#include "rows.hpp"

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

std::vector<BatchClass*>& batch_classes() {
    static auto* const all = new std::vector<BatchClass*>;
    return *all;
}

// -- constructors -------------------------------------------------------------------------------

std::shared_ptr<BoundBase> make_column(const std::string&, const std::string& format,
                                       py::handle given) {
    if (PyBytes_Check(given.ptr()) == 0) raise_wrong_type("data", "bytes", given);
    const auto data = std::make_shared<const std::string>(py::cast<std::string>(py::handle(given)));
    for (const auto type :
         {ColumnType::int64, ColumnType::boolean, ColumnType::float64, ColumnType::int8}) {
        const auto [known, size] = info(type);
        if (format != known) continue;
        if (data->size() % size != 0) raise_config("data is not a whole number of elements");
        if (type == ColumnType::boolean &&
            data->find_first_not_of(std::string_view{"\0\1", 2}) != std::string::npos) {
            raise_config("data has a byte that is no bool: '?' takes 0 and 1");
        }
        return std::make_shared<BoundColumn>(Column{data, data->data(), data->size() / size,
                                                    static_cast<std::ptrdiff_t>(size), type},
                                             column_class, py::dict());
    }
    raise_config("format is '" + format + "'; it takes 'l', '?', 'd', 'b'");
}

std::shared_ptr<BoundBase> make_numbers(const std::string&, py::handle values,
                                        const ErrorsByIndex& errors) {
    Refusals refusals;
    const py::tuple elements = to_elements(values, "values", "a sequence of int");
    auto numbers = to_amounts(elements, "values", elements.size(), 0, refusals);
    if (!refusals.by_index.empty()) raise(refusals.by_index.begin()->second);
    return make_int64_batch(std::move(numbers), errors.errors);
}

// -- what all batches have ------------------------------------------------------------------------

py::list list_of(const BoundBatch& self) {
    py::list items(self.size());
    for (std::size_t i = 0; i < self.size(); ++i) items[i] = self.item(i);
    return items;
}

py::object length(py::handle, BoundBatch& self) { return py::int_(self.size()); }
py::object iterate(py::handle, BoundBatch& self) { return py::iter(list_of(self)); }
// A copy: a change that somebody makes to it does not change the batch.
py::object errors_of(py::handle, BoundBatch& self) { return copy_of(self.errors); }

py::object element(py::handle, BoundBatch& self, py::handle key) {
    const auto size = static_cast<py::ssize_t>(self.size());
    if (PySlice_Check(key.ptr())) {
        py::ssize_t start = 0;
        py::ssize_t stop = 0;
        py::ssize_t step = 0;
        if (PySlice_Unpack(key.ptr(), &start, &stop, &step) != 0) throw py::error_already_set();
        const py::ssize_t count = PySlice_AdjustIndices(size, &start, &stop, step);
        if (count <= 1) step = 1;  // It may be so long that a stride of it has no 64 bits.
        return self.declared.make(
            self.slice(static_cast<std::size_t>(start), step, static_cast<std::size_t>(count)));
    }
    if (!PyIndex_Check(key.ptr())) raise_wrong_type("index", "int or slice", key);
    py::ssize_t index = PyNumber_AsSsize_t(key.ptr(), PyExc_IndexError);
    if (index == -1 && PyErr_Occurred() != nullptr) throw py::error_already_set();
    if (index < 0) index += size;
    if (index < 0 || index >= size) throw py::index_error("index out of range");
    return self.item(static_cast<std::size_t>(index));
}

// -- _core.Buffer, the C base of columns ----------------------------------------------------------

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
    view->obj = nullptr;
    PyObject* const done = guarded([&]() -> py::object {
        if (BoundObject::of(self)->bound == nullptr) raise_unfinished(self);
        const auto* const bound =
            dynamic_cast<const BoundColumn*>(BoundObject::of(self)->bound.get());
        if (bound == nullptr) raise_type("it has no buffer");
        const auto refuse = [](const char* why) {
            PyErr_SetString(PyExc_BufferError, why);
            throw py::error_already_set();
        };
        if ((flags & PyBUF_WRITABLE) != 0) refuse("a column cannot be written to");
        const bool takes_strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES;
        constexpr int kPacked =
            (PyBUF_C_CONTIGUOUS | PyBUF_F_CONTIGUOUS | PyBUF_ANY_CONTIGUOUS) & ~PyBUF_STRIDES;
        if ((!takes_strides || (flags & kPacked) != 0) && !bound->column().is_packed()) {
            refuse("this column is not contiguous");
        }
        bound->column().show(*view);
        if (!takes_strides) view->strides = nullptr;
        if ((flags & PyBUF_FORMAT) == 0) view->format = nullptr;
        if ((flags & PyBUF_ND) != PyBUF_ND) view->shape = nullptr;
        view->obj = Py_NewRef(self);
        return py::none();
    });
    Py_XDECREF(done);
    return done == nullptr ? -1 : 0;
}

void drop_buffer(PyObject*, Py_buffer* view) { delete[] static_cast<Py_ssize_t*>(view->internal); }

PyBufferProcs buffer_calls{&get_buffer, &drop_buffer};
PyTypeObject buffer_type{};

void make_buffer_type(const py::object& module) {
    const py::object base = module.attr("Handle");
    Py_SET_REFCNT(reinterpret_cast<PyObject*>(&buffer_type), 1);
    buffer_type.tp_name = "hotcount._core.Buffer";
    buffer_type.tp_doc = "A Handle whose memory NumPy takes as it is.";
    buffer_type.tp_base = reinterpret_cast<PyTypeObject*>(base.ptr());
    buffer_type.tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE;
    buffer_type.tp_as_buffer = &buffer_calls;
    if (PyType_Ready(&buffer_type) != 0) throw py::error_already_set();
    module.attr("Buffer") =
        py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(&buffer_type));
}

}  // namespace

// -- classes ----------------------------------------------------------------------------------------

BatchClass::BatchClass(const char* name) : name_(name) { batch_classes().push_back(this); }

py::object BatchClass::make(std::shared_ptr<BoundBatch> batch) const {
    if (type_ == nullptr) throw std::logic_error(std::string{name_} + " is not declared yet");
    auto made = py::reinterpret_steal<py::object>(type_->tp_new(type_, nullptr, nullptr));
    if (!made) throw py::error_already_set();
    BoundObject::of(made.ptr())->bound = std::move(batch);
    return made;
}

py::object join_batch(const py::object& declared) {
    const std::string name = text_attribute(declared, "__name__");
    for (BatchClass* const known : batch_classes()) {
        if (name != known->name_) continue;
        // The classes of a second import are those of the first, as with results.
        if (known->type_ == nullptr) {
            known->type_ = reinterpret_cast<PyTypeObject*>(py::object(declared).release().ptr());
        }
        return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(known->type_));
    }
    raise_import("Python declares the batch " + name + ", which C++ does not have");
}

void register_with_fastapi() {
    static bool registered = false;
    if (registered) return;
    static PyObject* const module = PyUnicode_InternFromString("fastapi.encoders");
    if (PyDict_GetItemWithError(PyImport_GetModuleDict(), module) == nullptr) return;
    registered = true;  // It makes no batch, and one that fails is not tried again.
    try {
        registered =
            import_module("hotcount.batches").attr("_register_with_fastapi")().cast<bool>();
    } catch (py::error_already_set& error) {
        error.discard_as_unraisable("hotcount: FastAPI");
    }
}

std::vector<std::string> undeclared_batches() {
    std::vector<std::string> names;
    for (const BatchClass* const each : batch_classes()) {
        if (each->type_ == nullptr) names.emplace_back(each->name_);
    }
    return names;
}

// -- columns --------------------------------------------------------------------------------------

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

bool Column::is_packed() const {
    return size_ <= 1 || stride_ == static_cast<std::ptrdiff_t>(info(type_).size);
}

void Column::show(Py_buffer& view) const {
    const auto [format, size] = info(type_);
    auto* const numbers = new Py_ssize_t[2]{static_cast<Py_ssize_t>(size_), stride_};
    view.internal = numbers;
    view.buf = const_cast<char*>(first_);
    view.len = static_cast<Py_ssize_t>(size_ * size);
    view.itemsize = static_cast<Py_ssize_t>(size);
    view.readonly = 1;
    view.ndim = 1;
    view.format = const_cast<char*>(format);
    view.shape = numbers;
    view.strides = numbers + 1;
    view.suboffsets = nullptr;
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

std::shared_ptr<BoundBatch> make_int64_batch(std::vector<std::int64_t> values, py::dict errors) {
    const auto held = std::make_shared<const std::vector<std::int64_t>>(std::move(values));
    static const std::int64_t nothing{};
    return std::make_shared<BoundColumn>(
        Column{held, held->empty() ? &nothing : held->data(), held->size(), sizeof(std::int64_t),
               ColumnType::int64},
        int64_batch_class, std::move(errors));
}

py::object finish(const std::shared_ptr<BoundBatch>& batch, OnErrors on_errors) {
    py::object result = batch->declared.make(batch);
    if (!batch->errors.empty() && on_errors == OnErrors::raise) {
        raise_batch(result, batch->errors, batch->size());
    }
    return result;
}

std::vector<Result<std::int64_t>> settled_amounts(const std::vector<std::int64_t>& amounts,
                                                  std::vector<Result<void>> settled) {
    std::vector<Result<std::int64_t>> added;
    added.reserve(settled.size());
    for (std::size_t i = 0; i < settled.size(); ++i) {
        added.push_back(settled[i] ? Result{amounts[i]}
                                   : Result<std::int64_t>{std::move(settled[i]).error()});
    }
    return added;
}

void bind_batch(const py::object& module) {
    make_buffer_type(module);
    object_method<&length, BoundBatch>("Values.__len__", "");
    object_method<&iterate, BoundBatch>("Values.__iter__", "");
    object_method<&element, BoundBatch, py::handle>("Values.__getitem__", "index");
    object_method<&errors_of, BoundBatch>("Batch.errors", "");
    constructor<&make_column, std::string, py::handle>("Column.__init__", "format data");
    constructor<&make_numbers, py::handle, ErrorsByIndex>("Int64Batch.__init__", "values errors");
}

}  // namespace hotcount::python
