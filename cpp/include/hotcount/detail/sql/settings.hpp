// The settings and the readiness of a database, for `hotcount doctor` and for probes.
#pragma once

#include <hotcount/detail/base/access.hpp>
#include <hotcount/result.hpp>
#include <hotcount/sql.hpp>
#include <map>
#include <string>
#include <vector>

namespace hotcount::sql {

/// Settings and version, by the database's own names. "pooled" is "on" if a pooler was found.
using Settings = std::map<std::string, std::string>;

/// Settings that the login may not read are missing. Fails if the server does not answer.
Result<Settings> read_settings(Database& database, Deadline deadline);

/// Succeeds if the database is ready for the access; otherwise the error gives the reason. For
/// reads it runs a statement that reads. For writes it first writes in a transaction that it rolls
/// back. On SQLite this transaction waits for the file's lock, like any other that writes.
Result<void> check_ready(Database& database, Access access, Deadline deadline);

// -- the SQLite library that hotcount uses, and others that this process has loaded --------------
//
// A SQLite library does not see the locks of another one in its process, so two of them on one file
// break each other's locks.

/// For a program that finds SQLite at run time instead of linking it. Python's extension uses the
/// library of the interpreter's sqlite3. The loader runs before every use that may be the first one,
/// in any thread, and its error is the error of that use.
void set_sqlite_loader(Result<void> (*loader)());

/// Succeeds at once where SQLite was linked or has been loaded.
Result<void> load_sqlite();

/// The files of other SQLite libraries, including static copies inside larger libraries. Searches
/// the read-only memory of all loaded libraries, once for each set of them: about 10 ms for 100 MB.
std::vector<std::string> other_sqlite_libraries();

/// Whether the code at an address, a function of a driver, calls the SQLite that hotcount uses.
bool calls_our_sqlite(const void* address);

}  // namespace hotcount::sql
