// The results of batch calls: Python Sequences whose columns NumPy takes without copying, declared
// in hotcount/batches.py.
//
//   Column       a strided view of int64, int8, bool or float64 over memory that is kept alive
//   Int64Batch   a Column of int64 with the errors by index
//   RowBatch<R>  rows of R with the errors by index; each member is a Column over them
//
// All are immutable. Errors are kept as Python exceptions, so this needs the GIL.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <hotcount/result.hpp>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bound.hpp"
#include "values/convert.hpp"
#include "values/errors.hpp"
#include "values/pybind.hpp"

namespace hotcount::python {

namespace py = pybind11;

/// The conversion of a T into a Python object: table.hpp. Declared here for the rows of batches.
template <class T>
struct To;

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
    py::object item(std::size_t index) const;
    Column slice(std::size_t start, std::ptrdiff_t step, std::size_t size) const;
    bool is_packed() const;
    /// Fills in a Py_buffer of one dimension that has its object already.
    void show(Py_buffer& view) const;

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

class BoundBatch;

/// A class of batches that Python declares, by its name; `@batch` joins the two.
class BatchClass {
  public:
    explicit BatchClass(const char* name);
    BatchClass(const BatchClass&) = delete;
    BatchClass& operator=(const BatchClass&) = delete;

    py::object make(std::shared_ptr<BoundBatch> batch) const;

  private:
    friend py::object join_batch(const py::object& declared);
    friend std::vector<std::string> undeclared_batches();

    const char* name_;
    PyTypeObject* type_{nullptr};  // Held for ever.
};
inline BatchClass column_class{"Column"};
inline BatchClass int64_batch_class{"Int64Batch"};
py::object join_batch(const py::object& declared);
std::vector<std::string> undeclared_batches();

/// Has FastAPI make JSON of batches, if the program uses it and it does not do so yet.
void register_with_fastapi();

/// The C++ part of a batch object.
class BoundBatch : public BoundBase {
  public:
    BoundBatch(const void* tag, const BatchClass& its_class, py::dict failed)
        : BoundBase(tag), declared(its_class), errors(std::move(failed)) {
        register_with_fastapi();
    }
    static bool accepts(const BoundBase& bound) {
        return dynamic_cast<const BoundBatch*>(&bound) != nullptr;
    }

    virtual std::size_t size() const = 0;
    virtual py::object item(std::size_t index) const = 0;
    virtual std::shared_ptr<BoundBatch> slice(std::size_t start, std::ptrdiff_t step,
                                              std::size_t count) const = 0;

    const BatchClass& declared;
    const py::dict errors;  ///< Of failed elements, by index.
};

/// The errors of the elements that a slice takes, by their new index.
py::dict slice_errors(const py::dict& errors, std::size_t start, std::ptrdiff_t step,
                      std::size_t size);

/// A Column; an Int64Batch is one too.
class BoundColumn final : public BoundBatch {
  public:
    BoundColumn(Column column, const BatchClass& its_class, py::dict failed)
        : BoundBatch(&kTag<BoundColumn>, its_class, std::move(failed)),
          column_(std::move(column)) {}

    std::size_t size() const override { return column_.size(); }
    py::object item(std::size_t index) const override { return column_.item(index); }
    std::shared_ptr<BoundBatch> slice(std::size_t start, std::ptrdiff_t step,
                                      std::size_t count) const override {
        return std::make_shared<BoundColumn>(column_.slice(start, step, count), declared,
                                             slice_errors(errors, start, step, count));
    }
    const Column& column() const { return column_; }

  private:
    Column column_;
};

/// One int64 for each element.
std::shared_ptr<BoundBatch> make_int64_batch(std::vector<std::int64_t> values, py::dict errors);

template <class Row>
class RowBatch final : public BoundBatch {
  public:
    /// The class that Python declares for it; declare_rows() gives it a name.
    static inline std::optional<BatchClass> batch_class;

    RowBatch(std::vector<Row> rows, py::dict failed)
        : BoundBatch(&kTag<RowBatch>, batch_class.value(), std::move(failed)),
          rows_(std::make_shared<const std::vector<Row>>(std::move(rows))),
          size_(rows_->size()) {}
    RowBatch(const RowBatch& whole, std::size_t start, std::ptrdiff_t step, std::size_t count)
        : BoundBatch(&kTag<RowBatch>, whole.declared,
                     slice_errors(whole.errors, start, step, count)),
          rows_(whole.rows_),
          start_(whole.start_ + static_cast<std::ptrdiff_t>(start) * whole.step_),
          step_(whole.step_ * step),
          size_(count) {}

    std::size_t size() const override { return size_; }
    py::object item(std::size_t index) const override { return To<Row>::make(at(index)); }
    std::shared_ptr<BoundBatch> slice(std::size_t start, std::ptrdiff_t step,
                                      std::size_t count) const override {
        return std::make_shared<RowBatch>(*this, start, step, count);
    }

    template <class T>
    py::object column(T Row::*member) const {
        static const T nothing{};
        const void* const first = size_ == 0 ? &nothing : &(at(0).*member);
        return column_class.make(std::make_shared<BoundColumn>(
            Column{rows_, first, size_, step_ * static_cast<std::ptrdiff_t>(sizeof(Row)),
                   column_type<T>()},
            column_class, py::dict()));
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
};

/// The last few objects that were made from errors of a batch's elements, to be used again for
/// equal errors. When a server does not answer, 100,000 elements have the same error, and an
/// exception for each would take seconds.
template <class Made>
class MadeOfErrors {
  public:
    template <class Make>
    const Made& find_or_make(const Error& error, const Make& make) {
        for (const auto& known : known_) {
            if (known && is_same(known->first, error)) return known->second;
        }
        auto& oldest = known_[next_++ % known_.size()];
        oldest.emplace(error, make(error));
        return oldest->second;
    }

  private:
    static bool is_same(const Error& a, const Error& b) {
        return a.code == b.code && a.facts == b.facts && a.message == b.message &&
               a.server_code == b.server_code;
    }

    // In a cluster each node has its own errors, of calls that were sent and of others.
    std::array<std::optional<std::pair<Error, Made>>, 4> known_{};
    std::size_t next_{0};
};

/// Exceptions of elements by their index; those that say the same are one.
class ExceptionsByIndex {
  public:
    explicit ExceptionsByIndex(py::dict& errors) : errors_(errors) {}
    void add(std::size_t index, const Error& error) {
        const py::object& exception = made_.find_or_make(error, to_exception);
        if (PyDict_SetItem(errors_.ptr(), py::int_(index).ptr(), exception.ptr()) != 0) {
            throw py::error_already_set();
        }
    }

  private:
    py::dict& errors_;
    MadeOfErrors<py::object> made_{};
};

/// Puts the core's results (of the elements that were not refused) back at their index; a failed
/// element gets a `T{}` in the column and its error in `errors`.
template <class T>
std::vector<T> gather(std::vector<Result<T>> results, const Refusals& refusals, py::dict& errors) {
    std::vector<T> values(results.size() + refusals.by_index.size());
    ExceptionsByIndex failed{errors};
    // Nothing was refused: no look-up for each element.
    if (refusals.by_index.empty()) {
        for (std::size_t i = 0; i < values.size(); ++i) {
            if (results[i].ok()) [[likely]] {
                values[i] = std::move(*results[i]);
            } else {
                failed.add(i, results[i].error());
            }
        }
        return values;
    }
    auto result = results.begin();
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (const auto refused = refusals.by_index.find(i); refused != refusals.by_index.end()) {
            failed.add(i, refused->second);
            continue;
        }
        if (result->ok()) {
            values[i] = std::move(*result).value();
        } else {
            failed.add(i, result->error());
        }
        ++result;
    }
    return values;
}

/// gather() for a BatchResult of the core.
template <class T>
std::vector<T> gather(BatchResult<T> result, const Refusals& refusals, py::dict& errors) {
    if (result.errors.empty() && refusals.by_index.empty()) return std::move(result.values);
    std::vector<T> values(result.values.size() + refusals.by_index.size());
    ExceptionsByIndex exceptions{errors};
    auto refused = refusals.by_index.begin();
    auto failed = result.errors.begin();
    std::size_t next = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (refused != refusals.by_index.end() && refused->first == i) {
            exceptions.add(i, (refused++)->second);
            continue;
        }
        values[i] = std::move(result.values[next]);
        if (failed != result.errors.end() && failed->first == next) {
            exceptions.add(i, (failed++)->second);
        }
        ++next;
    }
    return values;
}

/// The treatment of failed elements in a batch call: errors="raise" or "return".
enum class OnErrors : std::uint8_t { raise, keep };

/// The batch as a Python object, or BatchError if elements failed and the caller wants that.
py::object finish(const std::shared_ptr<BoundBatch>& batch, OnErrors on_errors);

/// The amounts of the adds that succeeded, in a batch that the core only settles.
std::vector<Result<std::int64_t>> settled_amounts(const std::vector<std::int64_t>& amounts,
                                                  std::vector<Result<void>> settled);

/// The Python object of a batch call's results: an Int64Batch, or a batch of rows.
template <class Results>
py::object to_batch(Results results, const Refusals& refusals, OnErrors on_errors) {
    py::dict errors;
    auto values = gather(std::move(results), refusals, errors);
    using Value = typename decltype(values)::value_type;
    if constexpr (std::is_same_v<Value, std::int64_t>) {
        return finish(make_int64_batch(std::move(values), std::move(errors)), on_errors);
    } else {
        return finish(std::make_shared<RowBatch<Value>>(std::move(values), std::move(errors)),
                      on_errors);
    }
}

/// The results of a batch as the rows that stand for them.
template <class T, class ToRow>
auto to_rows(std::vector<Result<T>> results, const ToRow& to_row) {
    std::vector<Result<decltype(to_row(std::move(*results.front())))>> rows;
    rows.reserve(results.size());
    for (auto& result : results) {
        if (result) {
            rows.push_back(to_row(std::move(*result)));
        } else {
            rows.push_back(std::move(result).error());
        }
    }
    return rows;
}

}  // namespace hotcount::python
