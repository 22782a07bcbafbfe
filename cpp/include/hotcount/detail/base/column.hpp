// What a batch call comes to: a value for each element, and the errors of those that failed.
#pragma once

#include <cstddef>
#include <hotcount/error.hpp>
#include <map>
#include <vector>

namespace hotcount {

template <class T>
struct Column {
    std::vector<T> values;                ///< By index; T{} where the element failed.
    std::map<std::size_t, Error> errors;  ///< By index; empty where all succeeded.
};

}  // namespace hotcount
