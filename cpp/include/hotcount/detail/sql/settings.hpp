// What a database says of itself: for `hotcount doctor` and for probes.
#pragma once

#include <hotcount/detail/base/access.hpp>
#include <hotcount/sql.hpp>
#include <map>
#include <string>

namespace hotcount::sql {

/// By the database's own names, with its version; "pooled" is "on" if a pooler was found in between.
using Settings = std::map<std::string, std::string>;

/// Settings that the login may not read are missing. The error of a server that does not answer.
Result<Settings> read_settings(Database& database, Deadline deadline);

/// Whether the database answers, and for writes, whether a transaction may write; the error says why
/// not. The transaction is rolled back, and a statement is read. On SQLite it waits for the file's lock
/// as any other that writes.
Result<void> check_ready(Database& database, Access access, Deadline deadline);

}  // namespace hotcount::sql
