// close(), `with` and closed of all concepts and stores. Declared in hotcount/_lifetime.py.
#include "native.hpp"
#include "native_calls.hpp"

namespace hotcount::python {
namespace {

py::object close(py::handle, BoundBase& self) {
    self.close();
    return py::none();
}
py::object enter(py::handle object, BoundBase&) {
    return py::reinterpret_borrow<py::object>(object);
}
py::object leave(py::handle, BoundBase& self, py::handle, py::handle, py::handle) {
    self.close();
    return py::none();
}
py::object is_closed(py::handle, BoundBase& self) { return py::bool_(self.closed()); }

// By outcome: "ok", or the code of the error.
py::object calls(py::handle, BoundBase& self) {
    py::dict all;
    all["ok"] = self.calls->ok;
    for (std::size_t i = 0; i < self.calls->failed.size(); ++i) {
        if (self.calls->failed[i] == 0) continue;
        all[py::str(std::string{to_string(static_cast<ErrorCode>(i))})] = self.calls->failed[i];
    }
    return all;
}

// Each ends at once, and is awaited only to look like the other calls.
py::object close_awaited(py::handle, BoundBase& self) {
    const py::object loop = running_loop();
    self.close();
    return Pending::make_done(loop, py::none());
}
py::object enter_awaited(py::handle object, BoundBase&) {
    return Pending::make_done(running_loop(), py::reinterpret_borrow<py::object>(object));
}
py::object leave_awaited(py::handle object, BoundBase& self, py::handle, py::handle, py::handle) {
    return close_awaited(object, self);
}

}  // namespace

void bind_lifetime() {
    using py::handle;
    object_method<&close, BoundBase>("Lifetime.close", "");
    object_method<&enter, BoundBase>("Lifetime.__enter__", "");
    object_method<&leave, BoundBase, handle, handle, handle>("Lifetime.__exit__",
                                                             "kind error traceback");
    object_method<&is_closed, BoundBase>("Lifetime.closed", "");
    object_method<&close_awaited, BoundBase>("Lifetime.aclose", "", true);
    object_method<&calls, BoundBase>("Lifetime._calls", "");
    object_method<&calls, BoundBase>("AsyncLifetime._calls", "");
    object_method<&close_awaited, BoundBase>("AsyncLifetime.aclose", "", true);
    object_method<&enter_awaited, BoundBase>("AsyncLifetime.__aenter__", "", true);
    object_method<&leave_awaited, BoundBase, handle, handle, handle>("AsyncLifetime.__aexit__",
                                                                     "kind error traceback", true);
    object_method<&is_closed, BoundBase>("AsyncLifetime.closed", "");
}

}  // namespace hotcount::python
