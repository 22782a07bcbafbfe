// Columns of a batch that belong together: keys and their numbers, items and their users.
#pragma once

#include "convert.hpp"

namespace hotcount::python {

/// dict, and what else is a collections.abc.Mapping.
bool is_mapping(py::handle value);
/// TypeError for a set, whose elements have no order that another column could follow.
void require_order(py::handle value, const Where& where);

/// A batch's keys and what belongs to each. Of a mapping key -> number: its keys and values, and a
/// TypeError if `numbers` is given as well. Else both as they are, `numbers` null if missing.
struct KeysAndNumbers {
    py::object keys;
    py::object numbers;
};
KeysAndNumbers to_keys_and_numbers(py::handle keys, const char* keys_name, py::handle numbers,
                                   const char* numbers_name);

}  // namespace hotcount::python
