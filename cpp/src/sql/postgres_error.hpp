// PostgreSQL's errors as ours: what each leaves known.
#pragma once

#include <string>
#include <string_view>

#include "libpq.hpp"

namespace hotcount::sql {

/// What an SQLSTATE means to a caller; the message and what was sent are not looked at.
ErrorCode classify_sqlstate(std::string_view state);

/// An error that the server answered with; `name` is the database's.
Error postgres_failure(const Libpq& pq, const pg_result* result, const std::string& name);
/// Whether the server ends the session with that answer.
bool ends_session(const Libpq& pq, const pg_result* result);

/// Why no connection came to be. With PQERRORS_VERBOSE, which is how its SQLSTATE is known.
Error connect_failure(const Libpq& pq, const pg_conn* connection, const std::string& name);
/// The connection's last error of its own as one line.
std::string connection_message(const Libpq& pq, const pg_conn* connection);

}  // namespace hotcount::sql
