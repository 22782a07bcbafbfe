#include "result.hpp"

#include <structmember.h>

#include <algorithm>
#include <vector>

#include "native.hpp"

namespace hotcount::python {
namespace {

std::vector<DeclaredClass*>& result_classes() {
    static auto* const all = new std::vector<DeclaredClass*>;
    return *all;
}

}  // namespace

DeclaredClass::DeclaredClass(const char* name) : name_(name) { result_classes().push_back(this); }

py::object EnumClass::join(const py::object& declared) {
    std::vector<std::string> names;
    std::vector<PyObject*> members;
    for (const py::handle member : declared) {
        names.push_back(text_attribute(member, "name"));
        if (PyLong_AsSize_t(member.attr("value").ptr()) != members.size()) {
            PyErr_Clear();
            raise_import(std::string{name_} + "." + names.back() + " is not " +
                         std::to_string(members.size()));
        }
        members.push_back(member.ptr());
    }
    const std::vector<std::string> ours(names_.begin(), names_.end());
    if (names != ours) {
        raise_import(std::string{name_} + " is declared with the members " + listed(names) +
                     " where C++ has " + listed(ours));
    }
    if (members_.empty()) {
        for (PyObject* const member : members) Py_INCREF(member);
        members_ = std::move(members);
    }
    return py::type::of(members_.front());
}

std::optional<std::size_t> EnumClass::find(py::handle value) const {
    const auto found = std::find(members_.begin(), members_.end(), value.ptr());
    if (found == members_.end()) return std::nullopt;
    return static_cast<std::size_t>(found - members_.begin());
}

py::object ResultClassBase::join(const py::object& declared) {
    std::vector<std::string> names;
    for (const py::handle field :
         import_module("dataclasses").attr("fields")(declared).cast<py::tuple>()) {
        names.push_back(text_attribute(field, "name"));
    }
    const std::vector<std::string> ours(fields_, fields_ + size_);
    if (names != ours) {
        raise_import(std::string{name_} + " is declared with the fields " + listed(names) +
                     " where C++ has " + listed(ours));
    }
    std::vector<Py_ssize_t> offsets(size_);
    for (std::size_t i = 0; i < size_; ++i) {
        const py::object slot = py::getattr(declared, fields_[i], py::none());
        if (!Py_IS_TYPE(slot.ptr(), &PyMemberDescr_Type)) {
            raise_import(std::string{name_} + "." + fields_[i] +
                         " has no slot: @dataclass needs "
                         "slots=True");
        }
        offsets[i] = reinterpret_cast<PyMemberDescrObject*>(slot.ptr())->d_member->offset;
    }
    if (type_ == nullptr) {
        std::copy(offsets.begin(), offsets.end(), offsets_);
        type_ = reinterpret_cast<PyTypeObject*>(py::object(declared).release().ptr());
    }
    return py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(type_));
}

py::object ResultClassBase::allocate() const {
    if (type_ == nullptr) {
        PyErr_Format(PyExc_RuntimeError, "hotcount.%s is not declared yet", name_);
        throw py::error_already_set();
    }
    auto made = py::reinterpret_steal<py::object>(type_->tp_alloc(type_, 0));
    if (!made) throw py::error_already_set();
    return made;
}

Argument ResultClassBase::field(py::handle object, std::size_t index) const {
    PyObject* const value =
        *reinterpret_cast<PyObject**>(reinterpret_cast<char*>(object.ptr()) + offsets_[index]);
    if (value == nullptr) {
        raise_type(std::string{name_} +
                   ".__init__() of this object was never called, or it failed: the object cannot "
                   "be used");
    }
    return {value, fields_[index], true};
}

py::object join_result(const py::object& declared) {
    const std::string name = text_attribute(declared, "__name__");
    for (DeclaredClass* const known : result_classes()) {
        if (name == known->name()) return known->join(declared);
    }
    raise_import("Python declares the result " + name + ", which C++ does not have");
}

std::vector<std::string> undeclared_results() {
    std::vector<std::string> names;
    for (const DeclaredClass* const result : result_classes()) {
        if (!result->joined()) names.emplace_back(result->name());
    }
    return names;
}

}  // namespace hotcount::python
