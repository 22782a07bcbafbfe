#include "errors.hpp"

#include <array>
#include <hotcount/detail/base/interrupt.hpp>

#include "gil.hpp"

namespace hotcount::python {
namespace {

struct Mapping {
    ErrorCode code;
    const char* exception;
};

// THE table: one line per ErrorCode, in its order.
constexpr std::array kExceptions{
    Mapping{ErrorCode::unavailable, "UnavailableError"},
    Mapping{ErrorCode::deadline, "DeadlineError"},
    Mapping{ErrorCode::outcome_unknown, "OutcomeUnknownError"},
    Mapping{ErrorCode::wrong_type, "WrongTypeError"},
    Mapping{ErrorCode::auth, "AuthError"},
    Mapping{ErrorCode::permission_denied, "PermissionDeniedError"},
    Mapping{ErrorCode::capacity, "CapacityError"},
    Mapping{ErrorCode::integrity, "IntegrityError"},
    Mapping{ErrorCode::overflow, "CounterOverflowError"},
    Mapping{ErrorCode::config, "ConfigError"},
    Mapping{ErrorCode::database, "DatabaseError"},
    Mapping{ErrorCode::reply, "ReplyError"},
    Mapping{ErrorCode::lease_lost, "LeaseLostError"},
    Mapping{ErrorCode::closed, "ClosedError"},
};

consteval bool in_enum_order() {
    for (std::size_t i = 0; i < kExceptions.size(); ++i) {
        if (static_cast<std::size_t>(kExceptions[i].code) != i) return false;
    }
    return static_cast<std::size_t>(ErrorCode::closed) + 1 == kExceptions.size();
}
static_assert(in_enum_order(), "kExceptions is indexed by ErrorCode");

// Borrowed for ever: an exception may be raised while the interpreter is shutting down.
std::array<PyObject*, kExceptions.size()> exception_classes{};
PyObject* batch_error_class = nullptr;

py::str to_text(const std::string& text) {
    // A server's message may be cut inside a character.
    auto decoded = py::reinterpret_steal<py::str>(PyUnicode_DecodeUTF8(
        text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
    if (!decoded) throw py::error_already_set();
    return decoded;
}

[[noreturn]] void raise_object(const py::object& exception) {
    PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
    throw py::error_already_set();
}

}  // namespace

void load_exceptions() {
    const auto module = import_module("hotcount.errors");
    for (std::size_t i = 0; i < kExceptions.size(); ++i) {
        exception_classes[i] = py::object(module.attr(kExceptions[i].exception)).release().ptr();
    }
    batch_error_class = py::object(module.attr("BatchError")).release().ptr();
}

py::object to_exception(const Error& error) {
    const py::handle type = exception_classes[static_cast<std::size_t>(error.code)];
    py::object made = error.server_code.empty()
                          ? type(to_text(error.message))
                          : type(to_text(error.message), to_text(error.server_code));
    if (error.facts == nullptr) return made;
    const ErrorFacts& facts = *error.facts;
    const auto put_text = [&](const char* name, const std::string& fact) {
        if (!fact.empty()) made.attr(name) = to_text(fact);
    };
    const auto put_id = [&](const char* name, const auto& fact) {
        if (!fact) return;
        const auto* const number = std::get_if<std::int64_t>(&*fact);
        made.attr(name) = number != nullptr ? py::object(py::int_(*number))
                                            : py::object(to_text(std::get<std::string>(*fact)));
    };
    put_text("server", facts.server);
    put_text("option", facts.option);
    put_text("value", facts.value);
    if (!facts.key.empty()) {
        const auto size = static_cast<Py_ssize_t>(facts.key.size());
        auto key = py::reinterpret_steal<py::object>(
            PyUnicode_DecodeUTF8(facts.key.data(), size, nullptr));
        if (!key) PyErr_Clear();
        made.attr("key") = key ? key : py::object(py::bytes(facts.key));
    }
    if (facts.timeout) {
        made.attr("timeout") = std::chrono::duration<double>(*facts.timeout).count();
    }
    put_id("item", facts.item);
    put_id("user", facts.user);
    put_text("missing", facts.missing);
    return made;
}

void raise(const Error& error) { raise_object(to_exception(error)); }

void raise_config(std::string message) { raise(make_error(ErrorCode::config, std::move(message))); }

void raise_type(const std::string& message) {
    PyErr_SetObject(PyExc_TypeError, to_text(message).ptr());
    throw py::error_already_set();
}

void raise_batch(const py::object& result, const py::dict& errors, std::size_t size) {
    std::string message =
        std::to_string(errors.size()) + " of " + std::to_string(size) + " elements failed";
    for (const auto& [index, error] : errors) {
        message += "; the first: [" + std::string(py::str(index)) + "] " +
                   std::string(py::str(py::type::of(error).attr("__name__"))) + ": " +
                   std::string(py::str(error));
        break;
    }
    raise_object(py::handle(batch_error_class)(to_text(message), result, copy_of(errors)));
}

// -- what a signal handler raised (gil.hpp) -------------------------------------------------------

namespace {

// The exception of a signal handler, for the thread that runs it. Raw pointers: no destructor at
// exit.
struct Raised {
    PyObject* type;
    PyObject* value;
    PyObject* traceback;
};
thread_local Raised raised{};

// In the waiting thread, without the GIL. In any but Python's main thread it does nothing.
bool run_signal_handlers() {
    const PyGILState_STATE state = PyGILState_Ensure();
    const bool stop = PyErr_CheckSignals() != 0;
    if (stop) PyErr_Fetch(&raised.type, &raised.value, &raised.traceback);
    PyGILState_Release(state);
    return stop;
}

}  // namespace

void install_interrupt_hook() { set_interrupt_hook(&run_signal_handlers); }

void raise_interrupt() {
    if (!interrupted()) return;
    clear_interrupt();
    PyErr_Restore(raised.type, raised.value, raised.traceback);
    raised = {};
    throw py::error_already_set();
}

}  // namespace hotcount::python
