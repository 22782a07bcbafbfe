// Binding a RowBatch: what a batch call returns where each answer has several members.
#pragma once

#include <pybind11/pybind11.h>

#include <string>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "convert.hpp"
#include "function.hpp"

namespace hotcount::python {

namespace py = pybind11;

template <class Row>
py::object rows_reduce(RowBatch<Row>& self, const Arguments&) {
    return py::make_tuple(py::type::of<RowBatch<Row>>(),
                          py::make_tuple(detail::to_list(self), self.errors()));
}

template <class Row>
RowBatch<Row> make_rows(const Arguments& arguments) {
    std::vector<Row> rows;
    for (const auto& row : to_elements(arguments[0], "values", "a sequence of values")) {
        if (!py::isinstance<Row>(row)) {
            raise_wrong_type(Where{"values", rows.size()}, "what this batch holds", row);
        }
        rows.push_back(row.template cast<Row>());
    }
    py::dict errors;
    if (arguments.given(1)) {
        if (!py::isinstance<py::dict>(arguments[1])) {
            raise_wrong_type("errors", "dict", arguments[1]);
        }
        errors = py::reinterpret_borrow<py::dict>(arguments[1]);
    }
    return {std::move(rows), std::move(errors)};
}

template <class Row, class T>
void define_column(py::class_<RowBatch<Row>>& cls, const char* name, T Row::*member,
                   const char* doc) {
    cls.def_property_readonly(
        name, [member](const RowBatch<Row>& self) { return self.column(member); }, doc);
}

template <class Row>
py::class_<RowBatch<Row>> bind_rows(py::module_& module, const char* name, const char* row_name,
                                    const char* doc) {
    py::class_<RowBatch<Row>> cls(module, name, doc);
    const std::string element = "hotcount._core." + std::string{row_name};
    define_init<&make_rows<Row>>(
        cls,
        "(self, values: collections.abc.Sequence[" + element +
            "], errors: dict[int, hotcount.errors.HotcountError] | None = None) -> None",
        "A batch of these values, for tests and pickle.");
    define_sequence(cls, name, element);
    define<&rows_reduce<Row>>(cls, "__reduce__", "(self) -> tuple[typing.Any, ...]", "For pickle.");
    define_errors(cls);
    return cls;
}

}  // namespace hotcount::python
