// Value types: what a call answers. Immutable, compared by value, hashed, printed and pickled, all
// from one list of fields.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

namespace hotcount::python {

namespace py = pybind11;

/// A row's identifier in a value: the annotation that stubs show for it.
class IdObject : public py::object {
  public:
    PYBIND11_OBJECT_DEFAULT(IdObject, py::object, always)
    static bool always(PyObject* object) { return object != nullptr; }
};

template <class Row, class T>
struct Field {
    const char* name;
    T Row::*member;
    const char* doc;
};
template <class Row, class T>
Field(const char*, T Row::*, const char*) -> Field<Row, T>;

template <class Row, class... T>
py::class_<Row> bind_value(py::module_& module, const char* name, const char* doc,
                           Field<Row, T>... fields) {
    py::class_<Row> cls(module, name, doc);
    cls.def(py::init([](T... values) { return Row{std::move(values)...}; }),
            py::arg(fields.name)...);
    (cls.def_readonly(fields.name, fields.member, fields.doc), ...);

    const auto values = [fields...](const Row& row) {
        return py::make_tuple(row.*(fields.member)...);
    };
    cls.def(
        "__eq__",
        [values](const Row& self, const py::object& other) -> py::object {
            if (!py::isinstance<Row>(other)) {
                return py::reinterpret_borrow<py::object>(Py_NotImplemented);
            }
            return py::bool_(values(self).equal(values(other.cast<const Row&>())));
        },
        py::arg("other"));
    cls.def("__hash__", [values](const Row& self) { return py::hash(values(self)); });
    cls.def("__reduce__", [values](const Row& self) {
        return py::make_tuple(py::type::of<Row>(), values(self));
    });
    cls.def("__repr__", [values, title = std::string{name}, fields...](const Row& self) {
        const py::tuple all = values(self);
        std::string text = title + "(";
        std::size_t index = 0;
        for (const char* field : {fields.name...}) {
            text += (index == 0 ? "" : ", ") + std::string{field} + "=" +
                    std::string(py::repr(all[index]));
            ++index;
        }
        return text + ")";
    });
    return cls;
}

}  // namespace hotcount::python

template <>
struct pybind11::detail::handle_type_name<hotcount::python::IdObject> {
    static constexpr auto name = const_name("int | str | uuid.UUID");
};
