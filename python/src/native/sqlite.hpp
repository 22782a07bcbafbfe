// The SQLite library of the extension.
#pragma once

namespace hotcount::python {

/// From now on the core uses the library of the interpreter's sqlite3, which its first use of SQLite
/// looks up. On import.
void use_sqlite_of_python();

}  // namespace hotcount::python
