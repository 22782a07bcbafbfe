// Error numbers of MariaDB, MySQL and their client library as ours: what each leaves known.
#pragma once

#include <hotcount/result.hpp>
#include <string>
#include <string_view>

namespace hotcount::sql {

/// What had been sent when an error came.
enum class MysqlStage : std::uint8_t {
    connecting,
    statement,  ///< Of a transaction: nothing of it is applied without a COMMIT.
    alone,      ///< That commits by itself: a change of the schema.
    commit,
};

/// `name` is the database's, for the message; `text` and `sqlstate` are the server's.
Error mysql_failure(const std::string& name, MysqlStage stage, unsigned number,
                    std::string_view sqlstate, std::string_view text);

/// The password was not sent to a server that wants to see it; `method` is what the server asks
/// for, empty if that is not known.
Error password_kept(const std::string& name, const std::string& method);
/// The same of a server that knows no answer to a challenge for this account yet
/// (caching_sha2_password's full authentication).
Error first_login_refused(const std::string& name);

/// Whether the client library made this error itself.
bool is_clients_own(unsigned number);
/// Whether the server refuses because it takes no writes (--read-only): it was a primary, or is to
/// become one. Such a COMMIT was rolled back.
bool says_reads_only(unsigned number, std::string_view text);
/// Whether the session does not have the prepared statement; nothing was run.
inline bool is_statement_gone(const Error& error) {
    return error.condition == SqlCondition::invalid_statement_name;
}
/// Whether the connection is of no more use after this error.
bool breaks_connection(unsigned number);

}  // namespace hotcount::sql
