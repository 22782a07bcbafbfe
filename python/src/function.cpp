#include "function.hpp"

#include <stdexcept>
#include <string_view>

namespace hotcount::python {
namespace {

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
    return text;
}

// Where `wanted` stands in text outside of brackets and quotes, or npos.
std::size_t find_outside(std::string_view text, char wanted) {
    int depth = 0;
    bool quoted = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '\'') quoted = !quoted;
        if (quoted) continue;
        if (depth == 0 && c == wanted) return i;
        if (c == '(' || c == '[') ++depth;
        if (c == ')' || c == ']') --depth;
    }
    return std::string_view::npos;
}

PyObject* interned(std::string_view name) {
    PyObject* made = PyUnicode_FromStringAndSize(name.data(), static_cast<Py_ssize_t>(name.size()));
    if (made == nullptr) throw py::error_already_set();
    PyUnicode_InternInPlace(&made);
    return made;
}

std::string text_of(PyObject* name) { return py::cast<std::string>(py::handle(name)); }

}  // namespace

Signature::Signature(std::string name, const std::string& text) : name_(std::move(name)) {
    std::string_view left{text};
    if (!left.starts_with('(')) throw std::logic_error(name_ + ": signature lacks (");
    left.remove_prefix(1);
    left = left.substr(0, find_outside(left, ')'));
    bool by_position = true;
    while (!left.empty()) {
        const auto comma = find_outside(left, ',');
        const auto part = trimmed(left.substr(0, comma));
        left = comma == std::string_view::npos ? std::string_view{} : left.substr(comma + 1);
        const auto end = std::min(find_outside(part, ':'), find_outside(part, '='));
        const auto parameter = trimmed(part.substr(0, end));
        if (parameter == "self") continue;
        if (parameter == "*") {
            by_position = false;
        } else if (parameter.starts_with("**")) {
            gathers_options_ = true;
        } else if (parameter.starts_with('*')) {
            gathers_rest_ = true;
            by_position = false;
        } else {
            const bool required = find_outside(part, '=') == std::string_view::npos;
            parameters_.push_back({interned(parameter), required});
            if (by_position) positional_ = parameters_.size();
        }
    }
    if (parameters_.size() > Arguments::kMaxParameters) {
        throw std::logic_error(name_ + ": too many parameters");
    }
}

std::vector<std::string> Signature::names() const {
    std::vector<std::string> names;
    for (const Parameter& parameter : parameters_) names.push_back(text_of(parameter.name));
    return names;
}

std::size_t Signature::find(PyObject* keyword) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (parameters_[i].name == keyword) return i;
    }
    // A keyword made at run time need not be interned.
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (PyUnicode_Compare(parameters_[i].name, keyword) == 0) return i;
    }
    return parameters_.size();
}

void Signature::put(Arguments& arguments, PyObject* keyword, PyObject* value) const {
    const std::size_t index = find(keyword);
    if (index == parameters_.size()) {
        if (!gathers_options_) {
            raise_type(name_ + "() got an unexpected keyword argument '" + text_of(keyword) + "'");
        }
        if (!arguments.options_) arguments.options_ = py::dict();
        if (PyDict_SetItem(arguments.options_.ptr(), keyword, value) != 0) {
            throw py::error_already_set();
        }
        return;
    }
    if (arguments.slots_[index] != nullptr) {
        raise_type(name_ + "() got multiple values for argument '" + text_of(keyword) + "'");
    }
    arguments.slots_[index] = value;
}

void Signature::check_required(const Arguments& arguments) const {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        if (parameters_[i].required && arguments.slots_[i] == nullptr) {
            raise_type(name_ + "() missing required argument '" + text_of(parameters_[i].name) +
                       "'");
        }
    }
}

void Signature::bind(Arguments& arguments, PyObject* const* values, Py_ssize_t positional,
                     PyObject* keyword_names) const {
    const auto count = static_cast<std::size_t>(positional);
    for (std::size_t i = 0; i < std::min(count, positional_); ++i) arguments.slots_[i] = values[i];
    if (gathers_rest_) {
        py::tuple rest(count > positional_ ? count - positional_ : 0);
        for (std::size_t i = 0; i < rest.size(); ++i) {
            rest[i] = py::reinterpret_borrow<py::object>(values[positional_ + i]);
        }
        arguments.rest_ = std::move(rest);
    } else if (count > positional_) {
        raise_type(name_ + "() takes at most " + std::to_string(positional_) +
                   " positional arguments (" + std::to_string(count) + " given)");
    }
    if (keyword_names != nullptr) {
        const Py_ssize_t keywords = PyTuple_GET_SIZE(keyword_names);
        for (Py_ssize_t i = 0; i < keywords; ++i) {
            put(arguments, PyTuple_GET_ITEM(keyword_names, i), values[positional + i]);
        }
    }
    check_required(arguments);
}

void Signature::bind(Arguments& arguments, const py::tuple& values,
                     const py::dict& keywords) const {
    std::vector<PyObject*> all;
    for (const auto& value : values) all.push_back(value.ptr());
    py::tuple names(keywords.size());
    std::size_t count = 0;
    for (const auto& [name, value] : keywords) {
        names[count++] = name;
        all.push_back(value.ptr());
    }
    bind(arguments, all.data(), static_cast<Py_ssize_t>(values.size()), names.ptr());
}

const char* detail::make_doc(const std::string& name, const std::string& signature,
                             const char* text) {
    return (new std::string(name + signature + "\n\n" + text))->c_str();
}

}  // namespace hotcount::python
