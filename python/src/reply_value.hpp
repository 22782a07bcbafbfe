// Commands that users write, and what a server replies to them, as Python values.
#pragma once

#include <pybind11/pybind11.h>

#include <hotcount/redis/reply.hpp>
#include <string>
#include <vector>

namespace hotcount::python {

namespace py = pybind11;

/// The words of execute(*command): a tuple of str, bytes, int or float.
std::vector<std::string> to_command(const py::object& words);
/// The same value from RESP2 and RESP3. An error inside an array is an exception object there.
py::object from_reply(const redis::Reply& reply);

}  // namespace hotcount::python
