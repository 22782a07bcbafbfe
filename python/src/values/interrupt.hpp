// Ctrl-C and other signals while a call waits without the GIL.
//
// CPython's C handler only notes a signal; its Python handler runs when the main thread asks for
// it. The core asks through the hook of hotcount/base/interrupt.hpp. What the handler raised is kept
// until the call has let go of all that it held, and raised then in place of its result.
#pragma once

namespace hotcount::python {

/// On import.
void install_interrupt_hook();

/// Raises what a signal handler raised in this thread meanwhile, if anything. Needs the GIL.
void raise_interrupt();

}  // namespace hotcount::python
