// Batches whose answers have several members: the rows of a RowBatch, joined to the class that
// Python declares.
//
//   declare_rows<DecisionRow>("Decisions", column<&DecisionRow::allowed>(), ...);
//   ... return to_batch(rows, refusals, on_errors);
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "batch.hpp"
#include "native_calls.hpp"
#include "options.hpp"
#include "table.hpp"
#include "values/convert.hpp"
#include "values/pybind.hpp"

namespace hotcount::python {

namespace py = pybind11;

/// errors= of a batch's constructor: None, or a dict.
struct ErrorsByIndex {
    py::dict errors;
};
template <>
struct From<ErrorsByIndex> {
    static ErrorsByIndex read(const Argument& argument) {
        if (argument.value == Py_None) return {};
        if (PyDict_Check(argument.value) == 0) {
            raise_wrong_type(argument.name, "dict", argument.value);
        }
        return {py::reinterpret_steal<py::dict>(PyDict_Copy(argument.value))};
    }
};

/// values= of a batch's constructor.
template <class Row>
struct Rows {
    std::vector<Row> rows;
};
template <class Row>
struct From<Rows<Row>> {
    static Rows<Row> read(const Argument& argument) {
        Rows<Row> all;
        for (const auto& row : to_elements(argument.value, argument.name, "a sequence of values")) {
            const std::string name = Where{argument.name, all.rows.size()}.str();
            all.rows.push_back(From<Row>::read({row.ptr(), name.c_str(), true}));
        }
        return all;
    }
};

template <class Row>
std::shared_ptr<BoundBase> make_rows(const std::string&, const Rows<Row>& values,
                                     const ErrorsByIndex& errors) {
    return std::make_shared<RowBatch<Row>>(values.rows, errors.errors);
}

template <auto Member>
struct RowColumn {
    const char* name;
};
template <auto Member>
constexpr RowColumn<Member> column(const char* name = kMemberName<Member>) {
    return {name};
}

/// Joins rows to the class that is called so; each column is an attribute.
template <class Row, auto... Member>
void declare_rows(const char* name, RowColumn<Member>... columns) {
    RowBatch<Row>::batch_class.emplace(name);
    const std::string init = std::string{name} + ".__init__";
    constructor<&make_rows<Row>, Rows<Row>, ErrorsByIndex>(init.c_str(), "values errors");
    (attribute<RowBatch<Row>>(name, columns.name,
                              [](const RowBatch<Row>& batch) { return batch.column(Member); }),
     ...);
}

}  // namespace hotcount::python
