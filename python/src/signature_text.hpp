// Pieces of the typed signatures (function.hpp) that many methods share.
#pragma once

#include <pybind11/pybind11.h>

#include <hotcount/base/clock.hpp>
#include <string>
#include <string_view>

#include "convert.hpp"

namespace hotcount::python {

inline const std::string kTime = "float | datetime.timedelta";
inline const std::string kTimeout = "timeout: " + kTime + " | None = None";
// A store for counters, limiters and sets, of either face.
inline const std::string kKeyValueStore =
    "hotcount._core.Memory | hotcount._core.Redis | hotcount._core.AsyncMemory | "
    "hotcount._core.AsyncRedis | str";
inline const std::string kOnErrors = "errors: typing.Literal['raise', 'return'] = 'raise'";

/// What a call of hotcount.aio returns. A coroutine by its type, so that create_task() takes it.
inline std::string awaited(const std::string& type) {
    return "collections.abc.Coroutine[typing.Any, typing.Any, " + type + "]";
}

/// A default as Python writes it, taken from the core's options so that it is written once.
inline std::string literal(const std::string& text) { return std::string(py::repr(py::str(text))); }
inline std::string literal(std::int64_t number) { return std::to_string(number); }
inline std::string literal(Duration duration) {
    return std::string(py::repr(py::float_(to_seconds(duration))));
}

}  // namespace hotcount::python
