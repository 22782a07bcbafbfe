// Binding a RowBatch: what a batch call returns where each answer has several members.
#pragma once

#include <pybind11/pybind11.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "convert.hpp"
#include "function.hpp"
#include "table.hpp"

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
        if constexpr (DeclaredRow<Row>) {
            rows.push_back(From<Row>::read({row.ptr(), "values", true}));
        } else {
            if (!py::isinstance<Row>(row)) {
                raise_wrong_type(Where{"values", rows.size()}, "what this batch holds", row);
            }
            rows.push_back(row.template cast<Row>());
        }
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

/// The columns as a table: to_dict() for pandas and JSON, and what notebooks show.
template <class Row>
void define_table(py::class_<RowBatch<Row>>& cls, std::vector<std::string> columns) {
    const auto column = [](const py::object& self, const std::string& name) {
        return py::list(py::object(self.attr(name.c_str())));
    };
    py::options plain;
    plain.disable_function_signatures();
    cls.def(
        "to_dict",
        [columns, column](const py::object& self) {
            py::dict all;
            for (const auto& name : columns) all[py::str(name)] = column(self, name);
            return all;
        },
        "to_dict(self) -> dict[str, list[typing.Any]]\n\nThe columns as lists, by their names.");
    cls.def(
        "_repr_html_",
        [columns](const py::object& self) {
            constexpr std::size_t kShown = 20;
            const std::size_t size = py::len(self);
            std::string html = "<table><tr><th></th>";
            for (const auto& name : columns) html += "<th>" + name + "</th>";
            html += "</tr>";
            for (std::size_t i = 0; i < std::min(size, kShown); ++i) {
                html += "<tr><td>" + std::to_string(i) + "</td>";
                for (const auto& name : columns) {
                    const py::object value = py::object(self.attr(name.c_str()))[py::int_(i)];
                    html += "<td>" + std::string(py::str(value)) + "</td>";
                }
                html += "</tr>";
            }
            html += "</table>";
            if (size > kShown) html += "<p>" + std::to_string(size) + " rows</p>";
            return html;
        },
        "_repr_html_(self) -> str\n\nThe first 20 rows, for notebooks.");
}

template <class Row>
py::class_<RowBatch<Row>> bind_rows(py::module_& module, const char* name, const char* row_name,
                                    const char* doc) {
    py::class_<RowBatch<Row>> cls(module, name, doc);
    const std::string element =
        (DeclaredRow<Row> ? "hotcount." : "hotcount._core.") + std::string{row_name};
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
