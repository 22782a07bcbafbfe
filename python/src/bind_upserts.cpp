#include <pybind11/native_enum.h>

#include "convert.hpp"
#include "function.hpp"
#include "upserts.hpp"
#include "value.hpp"

namespace hotcount::python {
namespace {

Upserts make_upserts(const Arguments& arguments) {
    std::vector<UpsertRow> rows;
    for (const auto& value : to_elements(arguments[0], "values", "a sequence of Upsert")) {
        if (!py::isinstance(value, py::type::of(py::cast(Upsert::applied)))) {
            raise_wrong_type(Where{"values", rows.size()}, "Upsert", value);
        }
        rows.push_back(to_row(value.cast<Upsert>()));
    }
    py::dict errors;
    if (arguments.given(1)) {
        if (!py::isinstance<py::dict>(arguments[1])) {
            raise_wrong_type("errors", "dict", arguments[1]);
        }
        errors = py::reinterpret_borrow<py::dict>(arguments[1]);
    }
    return {std::move(rows), std::move(errors)};
}

py::object upserts_reduce(Upserts& self, const Arguments&) {
    return py::make_tuple(py::type::of<Upserts>(),
                          py::make_tuple(detail::to_list(self), self.errors()));
}

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

    py::class_<Upserts> upserts(
        module, "Upserts",
        "What upsert_many came to: an immutable Sequence of Upsert, in order.\n\n"
        "NumPy takes each column without copying. A failed element is Upsert.FAILED here and has\n"
        "its exception in .errors.");
    define_init<&make_upserts>(
        upserts,
        "(self, values: collections.abc.Sequence[hotcount._core.Upsert], "
        "errors: dict[int, hotcount.errors.HotcountError] | None = None) -> None",
        "A batch of these values, for tests and pickle.");
    define_sequence(upserts, "Upserts", "hotcount._core.Upsert");
    define<&upserts_reduce>(upserts, "__reduce__", "(self) -> tuple[typing.Any, ...]",
                            "For pickle.");
    define_errors(upserts);
    upserts.def_property_readonly(
        "status", [](const Upserts& self) { return self.column(&UpsertRow::status); },
        "int8: the Upsert of each element as its number.");
    upserts.def_property_readonly(
        "applied", [](const Upserts& self) { return self.column(&UpsertRow::applied); },
        "bool: it is APPLIED.");
}

}  // namespace hotcount::python
