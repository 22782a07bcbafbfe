// aclose() and `async with`, for what event loops use.
#pragma once

#include <pybind11/pybind11.h>

#include <string>

#include "asyncio_names.hpp"
#include "function.hpp"
#include "pending.hpp"
#include "signature_text.hpp"
#include "store.hpp"

namespace hotcount::python {

/// For what has close(). It ends at once; that it is awaited is for the looks of it, so it is done
/// when it returns.
template <class Self>
struct AsyncLifetime {
    static py::object close(Self& self, const Arguments&) {
        const py::object loop = running_loop();
        self.close();
        return Pending::make_done(loop, py::none());
    }
    static py::object leave(Self& self, const Arguments& arguments) {
        return close(self, arguments);
    }
};

/// What becomes of calls under way.
inline constexpr const char* kCallsEnd =
    "Calls under way end: with ClosedError where nothing was applied, else with\n"
    "OutcomeUnknownError.";
inline constexpr const char* kVotesGoOn =
    "Votes that are being written are finished and told; those that are waiting for that end\n"
    "with ClosedError where the database ends too.";

template <class Self, class... Extra>
void define_async_lifetime(py::class_<Self, Extra...>& cls, const std::string& name,
                           const char* close_text, const char* calls_text = kCallsEnd) {
    define<&AsyncLifetime<Self>::close>(cls, "aclose", "(self) -> " + awaited("None"),
                                        kept_text(std::string{close_text} + "\n\n" + calls_text +
                                                  " It is done when it returns. Idempotent."));
    define<&AsyncLifetime<Self>::leave>(
        cls, "__aexit__", "(self, *exception: object) -> " + awaited("None"), "aclose().");
    py::options plain;
    plain.disable_function_signatures();
    cls.def(
        "__aenter__",
        [](const py::object& self) { return Pending::make_done(running_loop(), self); },
        kept_text("__aenter__(self) -> " + awaited("typing_extensions.Self")));
    define_identity(cls, name, "Whether aclose() was called.");
}

}  // namespace hotcount::python
