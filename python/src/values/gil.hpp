// Scopes without and with the GIL, and the exceptions of signal handlers that ran during a call.
#pragma once

#include <pybind11/gil_safe_call_once.h>
#include <unistd.h>

#include <type_traits>
#include <utility>

#include "pybind.hpp"

namespace hotcount::python {

// -- Ctrl-C and other signals while a call waits without the GIL ------------------------------------
//
// CPython's C handler only records a signal; the Python handler runs when the main thread calls
// PyErr_CheckSignals(). The core does so through the hook of hotcount/detail/base/interrupt.hpp. An
// exception of the handler is kept until the call has released all that it held. It is then raised
// in place of the call's result.

/// Called once, by the import.
void install_interrupt_hook();

/// Raises the exception of a signal handler that ran in this thread during the call, if there is
/// one. Needs the GIL.
void raise_interrupt();

// -- the GIL ----------------------------------------------------------------------------------------

/// Releases the GIL until the end of the scope, in which no code may touch Python.
class WithoutGil {
  public:
    WithoutGil() : state_(PyEval_SaveThread()) {}
    WithoutGil(const WithoutGil&) = delete;
    WithoutGil& operator=(const WithoutGil&) = delete;

    ~WithoutGil() {
        // Before 3.14, CPython calls pthread_exit in a daemon thread that asks for the GIL while
        // the interpreter shuts down. The unwinding would end in std::terminate here; nothing else
        // is thrown. The thread hangs instead, as in 3.14, until the process has ended.
        try {
            PyEval_RestoreThread(state_);
        } catch (...) {
            for (;;) pause();
        }
    }

  private:
    PyThreadState* state_;
};

/// Holds the GIL until the end of the scope, in any thread, also in one that already has it. False
/// if the interpreter is shutting down and the GIL cannot be had.
class WithGil {
  public:
    WithGil() : is_core_thread_(PyGILState_GetThisThreadState() == nullptr) {
        if (is_finalizing()) return;
        // The interpreter may begin to shut down while we wait here: see ~WithoutGil.
        try {
            state_ = PyGILState_Ensure();
        } catch (...) {
            for (;;) pause();
        }
        held_ = true;
        if (is_core_thread_) ++core_scopes_;
    }
    WithGil(const WithGil&) = delete;
    WithGil& operator=(const WithGil&) = delete;
    ~WithGil() {
        if (!held_) return;
        // If pthread_exit unwinds this thread (see call_or_hang), it does not have the GIL, and
        // releasing it would end the process.
        while (PyGILState_Check() == 0) pause();
        if (is_core_thread_) --core_scopes_;
        PyGILState_Release(state_);
    }
    explicit operator bool() const { return held_; }

    /// Whether this thread has the GIL and belongs to Python. A thread of the core must not destroy
    /// an object whose destructor waits for that thread.
    static bool in_python() { return core_scopes_ == 0 && PyGILState_Check() != 0; }

  private:
    static bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
        return Py_IsFinalizing() != 0;
#else
        return _Py_IsFinalizing() != 0;
#endif
    }

    static inline thread_local int core_scopes_ = 0;

    bool is_core_thread_;
    bool held_{false};
    PyGILState_STATE state_{};
};

/// Returns call(), for a thread of the library that has the GIL. `call` uses the C API of CPython
/// and makes no C++ objects. Python code that it runs may release the GIL, and the interpreter may
/// begin to shut down before the thread has it again. The thread is then unwound without the GIL,
/// as in ~WithoutGil. It hangs here, before the destructor of an object that needs the GIL runs.
template <class Call>
auto call_or_hang(Call&& call) {
    try {
        return call();
    } catch (...) {
        for (;;) pause();
    }
}

/// The result of `make`, which is called once, with the GIL. The result is never destroyed, because
/// it may be used while the interpreter shuts down. A plain static local would deadlock: its
/// initialiser may release the GIL, and another thread would hold the GIL while it waits for the
/// initialiser.
template <class T, class Make>
const T& made_once(Make&& make) {
    PYBIND11_CONSTINIT static pybind11::gil_safe_call_once_and_store<T> storage;
    return storage.call_once_and_store_result(std::forward<Make>(make)).get_stored();
}

/// Runs f without the GIL. If a signal handler raised an exception meanwhile, raises it and drops
/// the result of f, which the core has ended as at its deadline.
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
