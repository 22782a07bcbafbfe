// What LiveSets answer, as Python has it: Upsert, Upserts and SweepReport.
#pragma once

#include <pybind11/pybind11.h>

#include <hotcount/zset/live_sets.hpp>

#include "batch.hpp"

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

/// A row goes to Python as the Upsert that it stands for.
template <>
struct pybind11::detail::type_caster<hotcount::python::UpsertRow> {
    static constexpr auto name = const_name("hotcount._core.Upsert");
    static handle cast(const hotcount::python::UpsertRow& row, return_value_policy, handle) {
        return pybind11::cast(static_cast<hotcount::Upsert>(row.status)).release();
    }
};

namespace hotcount::python {

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
