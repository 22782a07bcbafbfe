#include "reply_value.hpp"

#include "convert.hpp"
#include "errors.hpp"

namespace hotcount::python {
namespace {

struct FromReply {
    py::object operator()(std::monostate) const { return py::none(); }
    py::object operator()(std::int64_t number) const { return py::int_(number); }
    py::object operator()(double number) const { return py::float_(number); }
    py::object operator()(bool truth) const { return py::bool_(truth); }
    py::object operator()(const std::string& text) const { return py::bytes(text); }
    py::object operator()(const redis::ReplyError& error) const {
        const auto word = error.message.substr(0, error.message.find(' '));
        return to_exception(make_error(ErrorCode::reply, error.message, word));
    }
    py::object operator()(const redis::ReplyArray& array) const {
        py::list items(array.size());
        for (std::size_t i = 0; i < array.size(); ++i) items[i] = from_reply(array[i]);
        return items;
    }
};

// As redis-py writes them: numbers in decimal, str as UTF-8.
std::string to_command_part(py::handle value, std::size_t index) {
    if (PyFloat_CheckExact(value.ptr())) return std::string(py::repr(value));
    if (!PyUnicode_Check(value.ptr()) && !PyBytes_Check(value.ptr())) {
        if (PyBool_Check(value.ptr()) || !PyIndex_Check(value.ptr())) {
            raise_wrong_type(Where{"command", index}, "str, bytes, int or float", value);
        }
        const auto number = py::reinterpret_steal<py::object>(PyNumber_Index(value.ptr()));
        if (!number) throw py::error_already_set();
        return std::string(py::str(number));
    }
    return std::string{to_bytes(value, Where{"command", index})};
}

}  // namespace

py::object from_reply(const redis::Reply& reply) { return std::visit(FromReply{}, reply.value); }

std::vector<std::string> to_command(const py::object& words) {
    const auto given = py::reinterpret_borrow<py::tuple>(words);
    if (given.empty()) raise_type("execute() missing the command");
    std::vector<std::string> parts;
    for (std::size_t i = 0; i < given.size(); ++i) parts.push_back(to_command_part(given[i], i));
    return parts;
}

}  // namespace hotcount::python
