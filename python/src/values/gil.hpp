// Leaving the GIL while the core works or waits, and signals that come meanwhile.
#pragma once

#include <pybind11/gil_safe_call_once.h>
#include <unistd.h>

#include <type_traits>
#include <utility>

#include "pybind.hpp"

namespace hotcount::python {

// -- Ctrl-C and other signals while a call waits without the GIL ------------------------------------
//
// CPython's C handler only notes a signal; its Python handler runs when the main thread asks for
// it. The core asks through the hook of hotcount/detail/base/interrupt.hpp. What the handler raised is kept
// until the call has let go of all that it held, and raised then in place of its result.

/// On import.
void install_interrupt_hook();

/// Raises what a signal handler raised in this thread meanwhile, if anything. Needs the GIL.
void raise_interrupt();

// -- the GIL ----------------------------------------------------------------------------------------

/// Without the GIL from here to the end of the scope. Nothing in between may touch Python.
class WithoutGil {
  public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;

    ~WithoutGil() {
        // Before 3.14 CPython ends a daemon thread that comes back while the interpreter shuts
        // down with pthread_exit, whose unwinding would end in std::terminate here. Nothing else
        // is thrown. Such a thread hangs, as in 3.14, until the process is gone.
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            for (;;) pause();
        }
    }

  private:
    PyThreadState* state_;
};

/// With the GIL from here to the end of the scope, in any thread, whether it has it or not. False
/// if the interpreter is shutting down and gives it to nobody any more.
class WithGil {
  public:
    WithGil() : visits_(PyGILState_GetThisThreadState() == nullptr) {
        if (is_finalizing()) return;
        // The interpreter may begin to shut down while we wait here: see ~WithoutGil.
        try {
            state_ = PyGILState_Ensure();
        } catch (...) {
            for (;;) pause();
        }
        held_ = true;
        if (visits_) ++visiting_;
    }
    WithGil(const WithGil&) = delete;
    WithGil& operator=(const WithGil&) = delete;
    ~WithGil() {
        if (!held_) return;
        // pthread_exit unwinds this thread (see call_or_hang): releasing what it does not have
        // would end the process.
        while (PyGILState_Check() == 0) pause();
        if (visits_) --visiting_;
        PyGILState_Release(state_);
    }
    explicit operator bool() const { return held_; }

    /// Whether this thread has the GIL and is one of Python's: not a thread of the core, which
    /// must not end what would wait for that thread.
    static bool in_python() { return visiting_ == 0 && PyGILState_Check() != 0; }

  private:
    static bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
        return Py_IsFinalizing() != 0;
#else
        return _Py_IsFinalizing() != 0;
#endif
    }

    static inline thread_local int visiting_ = 0;

    bool visits_;
    bool held_{false};
    PyGILState_STATE state_{};
};

/// Returns call(), which calls CPython and makes no C++ objects: for a thread of the library that has the
/// GIL. Python that runs there may let go of the GIL, and the interpreter begin to shut down
/// before it comes back; then the thread is unwound without the GIL, as in ~WithoutGil. It hangs
/// here, before anything is destroyed that would need it.
template <class Call>
auto call_or_hang(Call&& call) {
    try {
        return call();
    } catch (...) {
        for (;;) pause();
    }
}

/// The result of `make`, which is called once, with the GIL. It is never destroyed, because it may be used
/// while the interpreter shuts down. A static local's own initialiser must not run Python: it would
/// let go of the GIL, and another thread would wait for the static while it holds the GIL.
template <class T, class Make>
const T& made_once(Make&& make) {
    PYBIND11_CONSTINIT static pybind11::gil_safe_call_once_and_store<T> storage;
    return storage.call_once_and_store_result(std::forward<Make>(make)).get_stored();
}

/// Runs f without the GIL. If a signal handler raised meanwhile, that is raised here, and the
/// result of f is dropped: the core has ended it as at a deadline.
template <class F>
auto without_gil(F&& f) {
    const auto run = [&] {
        const WithoutGil released;
        return f();
    };
    if constexpr (std::is_void_v<decltype(f())>) {
        run();
        raise_interrupt();
    } else {
        auto result = run();
        raise_interrupt();
        return result;
    }
}

}  // namespace hotcount::python
