// Error numbers of MariaDB, MySQL and their client library as ours: what each leaves known.
#pragma once

#include <hotcount/base/result.hpp>
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

/// Whether the client library made this error itself.
bool is_clients_own(unsigned number);
/// Whether the connection is of no more use after this error.
bool breaks_connection(unsigned number);

}  // namespace hotcount::sql
