// PostgreSQL's errors as ours: what each leaves known.
#pragma once

#include <string>
#include <string_view>

#include "libpq.hpp"

namespace hotcount::sql {

/// What an SQLSTATE means to a caller; the message and what was sent are not looked at.
ErrorCode classify_sqlstate(std::string_view state);
/// What it means to those who decide what to do next; `said` is the server's sentence, without its
/// details.
SqlCondition condition_of_sqlstate(std::string_view state, std::string_view said);

/// An error that the server answered with; `name` is the database's. What the server says is
/// shortened, and shows no password (hide_secrets()).
Error postgres_failure(const Libpq& pq, const pg_result* result, const std::string& name);
/// Whether the server ends the session with that answer.
bool ends_session(const Libpq& pq, const pg_result* result);

/// Why no connection came to be. With PQERRORS_VERBOSE, which is how its SQLSTATE is known.
Error connect_failure(const Libpq& pq, const pg_conn* connection, const std::string& name);
/// Why a password was not sent; to stand behind the database's name.
inline constexpr const char* kClearTextRefused =
    ": the server asks for the password in clear text (its method is \"password\") and has not "
    "shown who it is: the password was not sent. It may be over verified TLS "
    "(?sslmode=verify-full&sslrootcert=FILE), or a Unix socket";
/// The connection's last error of its own as one line.
std::string connection_message(const Libpq& pq, const pg_conn* connection);

}  // namespace hotcount::sql
