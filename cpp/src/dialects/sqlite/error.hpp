// SQLite's result codes as ours: what each leaves known.
#pragma once

#include <hotcount/result.hpp>
#include <string>

struct sqlite3;

namespace hotcount::sql {

/// The error of the connection's last call, with the file's name in its message.
/// `code` is the extended result code.
Error sqlite_failure(sqlite3* connection, int code, const std::string& name);

}  // namespace hotcount::sql
