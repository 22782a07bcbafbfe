// What LiveSets answer, as Python has it: Upsert, Upserts and SweepReport.
#pragma once

#include <pybind11/pybind11.h>

#include <hotcount/zset/live_sets.hpp>

#include "table.hpp"

namespace hotcount::python {

// An Upsert as columns have it.
struct UpsertRow {
    std::int8_t status;
    bool applied;
};

/// Names of keys in a value: the annotation that stubs show for it.
class Names : public py::tuple {
  public:
    PYBIND11_OBJECT(Names, py::tuple, PyTuple_Check)
};

}  // namespace hotcount::python

template <>
struct pybind11::detail::handle_type_name<hotcount::python::Names> {
    static constexpr auto name = const_name("tuple[str | bytes, ...]");
};

namespace hotcount::python {

template <>
struct To<UpsertRow> {
    static py::object make(const UpsertRow& row) {
        return py::cast(static_cast<Upsert>(row.status));
    }
};
template <>
struct From<UpsertRow> {
    static UpsertRow read(const Argument& argument) {
        const py::handle value = argument.value;
        if (!py::isinstance(value, py::type::of(py::cast(Upsert::applied)))) {
            raise_wrong_type(argument.name, "Upsert", value);
        }
        const auto upsert = value.cast<Upsert>();
        return {static_cast<std::int8_t>(upsert), upsert == Upsert::applied};
    }
};

using Upserts = RowBatch<UpsertRow>;

inline UpsertRow to_row(Upsert upsert) {
    return {static_cast<std::int8_t>(upsert), upsert == Upsert::applied};
}

struct SweepRow {
    std::int64_t scanned;
    std::int64_t found;
    std::int64_t deleted;
    Names keys;
};

/// Binds the three; before the signatures that name them.
void bind_upserts(py::module_& module);

}  // namespace hotcount::python
