// Leaving the GIL while the core works or waits.
#pragma once

#include <pybind11/pybind11.h>
#include <unistd.h>

#include <type_traits>

#include "interrupt.hpp"

namespace hotcount::python {

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

/// Runs f without the GIL. Where a signal handler raised meanwhile, that is raised here, and what f
/// came to is dropped: the core has ended it as at a deadline.
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
