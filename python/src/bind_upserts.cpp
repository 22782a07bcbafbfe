#include <pybind11/native_enum.h>

#include "convert.hpp"
#include "function.hpp"
#include "rows.hpp"
#include "upserts.hpp"
#include "value.hpp"

namespace hotcount::python {
namespace {

void bind_upsert(py::module_& module) {
    py::native_enum<Upsert> upsert(
        module, "Upsert", "enum.IntEnum",
        "What an upsert or remove came to. True where it is APPLIED.\n\n"
        "APPLIED: the member has the score. ABSENT: no such set; nothing was made. STALE: the\n"
        "member's last write has this version or a higher one. EXPIRING: the set's TTL is not\n"
        "above the gate. NO_TTL: the set never expires and was left alone. FAILED: only in a\n"
        "batch, where the element has its exception in .errors. str() is the name.");
    for (const auto value : {Upsert::failed, Upsert::applied, Upsert::absent, Upsert::stale,
                             Upsert::expiring, Upsert::no_ttl}) {
        upsert.value(std::string{to_string(value)}.c_str(), value);
    }
    upsert.finalize();
    // An IntEnum is as true as its number, and prints it: neither is what an answer should do.
    const py::object cls = module.attr("Upsert");
    cls.attr("__bool__") = py::cpp_function(
        [](const py::object& self) { return self.cast<Upsert>() == Upsert::applied; },
        py::name("__bool__"), py::is_method(cls));
    cls.attr("__str__") = py::cpp_function(
        [](const py::object& self) { return std::string{to_string(self.cast<Upsert>())}; },
        py::name("__str__"), py::is_method(cls));
    cls.attr("__format__") = py::cpp_function(
        [](const py::object& self, const std::string& specification) {
            return py::str(py::str(self).attr("__format__")(specification));
        },
        py::name("__format__"), py::is_method(cls), py::arg("specification"));
}

}  // namespace

void bind_upserts(py::module_& module) {
    bind_upsert(module);
    bind_value(module, "SweepReport", "What a sweep came to.",
               Field{"scanned", &SweepRow::scanned, "Sorted sets that matched."},
               Field{"found", &SweepRow::found, "Of them, those without a TTL."},
               Field{"deleted", &SweepRow::deleted,
                     "Of them, those that still had none when they were deleted."},
               Field{"keys", &SweepRow::keys, "The first 1,000 of those found."});

    declare_rows<UpsertRow>("Upserts", column<&UpsertRow::status>("status"),
                            column<&UpsertRow::applied>("applied"));
}

}  // namespace hotcount::python
