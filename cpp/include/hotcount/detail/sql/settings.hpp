// What a database says of itself: for `hotcount doctor` and for probes.
#pragma once

#include <hotcount/detail/base/access.hpp>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <map>
#include <string>
#include <vector>

namespace hotcount::sql {

/// By the database's own names, with its version; "pooled" is "on" if a pooler was found in between.
using Settings = std::map<std::string, std::string>;

/// Settings that the login may not read are missing. The error of a server that does not answer.
Result<Settings> read_settings(Database& database, Deadline deadline);

/// Whether the database answers, and for writes, whether a transaction may write; the error says why
/// not. The transaction is rolled back, and a statement is read. On SQLite it waits for the file's lock
/// as any other that writes.
Result<void> check_ready(Database& database, Access access, Deadline deadline);

// -- the SQLite library that hotcount uses, and others that this process has loaded --------------
//
// Each SQLite library knows only of its own locks, so two of them on one file break each other's.

/// For a program that finds SQLite at run time instead of linking it. Python's extension uses the
/// library of the interpreter's sqlite3. The loader runs before every use that may be the first one,
/// in any thread, and its error is the error of that use.
void set_sqlite_loader(Result<void> (*loader)());

/// Succeeds at once where SQLite was linked or has been loaded.
Result<void> load_sqlite();

/// The files of the other libraries, static copies in larger ones too. Looks through the read-only
/// memory of all that is loaded, once for each set of libraries: about 10 ms for 100 MB.
std::vector<std::string> other_sqlite_libraries();

/// Whether the code at an address, a function of a driver, calls the SQLite that hotcount uses.
bool calls_our_sqlite(const void* address);

}  // namespace hotcount::sql
