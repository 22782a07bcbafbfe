// Which SQLite libraries this process has loaded besides the one that hotcount uses.
//
// Each SQLite library knows only of its own locks, so two of them on one file break each other's.
#pragma once

#include <string>
#include <vector>

namespace hotcount::sql {

/// The files of the other libraries, static copies in larger ones too. Looks through the read-only
/// memory of all that is loaded, once for each set of libraries: about 10 ms for 100 MB.
std::vector<std::string> other_sqlite_libraries();

/// Whether the code at an address, a function of a driver, calls the SQLite that hotcount uses.
bool calls_our_sqlite(const void* address);

}  // namespace hotcount::sql
