#include "connection.hpp"

#include <algorithm>
#include <array>
#include <hotcount/detail/sql/transaction.hpp>

#include "base/secrets.hpp"

namespace hotcount::sql {
namespace {

ErrorCode classify(unsigned number) {
    switch (number) {
        case 1040:  // ER_CON_COUNT_ERROR: too many connections
        case 1047:  // ER_UNKNOWN_COM_ERROR: see is_not_run()
        case 1053:  // ER_SERVER_SHUTDOWN
        case 1129:  // ER_HOST_IS_BLOCKED: max_connect_errors handshakes were broken off
        case 1152:  // ER_ABORTING_CONNECTION
        case 1184:  // ER_NEW_ABORTING_CONNECTION
        case 1203:  // ER_TOO_MANY_USER_CONNECTIONS
        case 1226:  // ER_USER_LIMIT_REACHED
        case 1243:  // ER_UNKNOWN_STMT_HANDLER
        case 1461:  // ER_MAX_PREPARED_STMT_COUNT_REACHED
        case 1615:  // ER_NEED_REPREPARE
        case 1927:  // ER_CONNECTION_KILLED
        case 2002:  // cannot connect, socket
        case 2003:  // cannot connect, host
        case 2005:  // unknown host
        case 2006:  // server gone
        case 2012:  // error in the handshake
        case 2013:  // connection lost
        case 2026:  // TLS
        case 2027:  // malformed packet
        case 2055:  // connection lost
        case 3032:  // ER_SERVER_OFFLINE_MODE, MySQL
        case 4031:  // ER_CLIENT_INTERACTION_TIMEOUT, MySQL: the session was idle for too long
            return ErrorCode::unavailable;
        case 1205:  // ER_LOCK_WAIT_TIMEOUT
        case 1213:  // ER_LOCK_DEADLOCK
        case 1317:  // ER_QUERY_INTERRUPTED
        case 1467:  // ER_AUTOINC_READ_FAILED
        case 1969:  // ER_STATEMENT_TIMEOUT
        case 3024:  // ER_QUERY_TIMEOUT
        case 3572:  // ER_LOCK_NOWAIT, MySQL
            return ErrorCode::deadline;
        case 1022:  // ER_DUP_KEY
        case 1048:  // ER_BAD_NULL_ERROR
        case 1062:  // ER_DUP_ENTRY
        case 1169:  // ER_DUP_UNIQUE
        case 1216:  // ER_NO_REFERENCED_ROW
        case 1217:  // ER_ROW_IS_REFERENCED
        case 1451:  // ER_ROW_IS_REFERENCED_2
        case 1452:  // ER_NO_REFERENCED_ROW_2
        case 1557:  // ER_FOREIGN_DUPLICATE_KEY
        case 1586:  // ER_DUP_ENTRY_WITH_KEY_NAME
        case 3819:  // ER_CHECK_CONSTRAINT_VIOLATED, MySQL
        case 4025:  // ER_CONSTRAINT_FAILED, MariaDB
            return ErrorCode::integrity;
        case 1264:  // ER_WARN_DATA_OUT_OF_RANGE
        case 1690:  // ER_DATA_OUT_OF_RANGE
            return ErrorCode::overflow;
        case 1045:  // ER_ACCESS_DENIED_ERROR
        case 1130:  // ER_HOST_NOT_PRIVILEGED
        case 1251:  // ER_NOT_SUPPORTED_AUTH_MODE
        case 1698:  // ER_ACCESS_DENIED_NO_PASSWORD_ERROR
        case 1820:  // ER_MUST_CHANGE_PASSWORD
        case 1862:  // ER_MUST_CHANGE_PASSWORD_LOGIN
        case 2058:  // authentication plugin refused
        case 2059:  // authentication plugin not found
        case 2061:  // authentication plugin failed
        case 3118:  // ER_ACCOUNT_HAS_BEEN_LOCKED, MySQL
        case 4151:  // ER_ACCOUNT_HAS_BEEN_LOCKED, MariaDB
            return ErrorCode::auth;
        case 1044:  // ER_DBACCESS_DENIED_ERROR
        case 1142:  // ER_TABLEACCESS_DENIED_ERROR
        case 1143:  // ER_COLUMNACCESS_DENIED_ERROR
        case 1227:  // ER_SPECIFIC_ACCESS_DENIED_ERROR
        case 1290:  // ER_OPTION_PREVENTS_STATEMENT: another than --read-only
        case 1370:  // ER_PROCACCESS_DENIED_ERROR
        case 1449:  // ER_NO_SUCH_USER: of a trigger, which runs with its rights
        case 1792:  // ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION
            return ErrorCode::permission_denied;
        default:
            return ErrorCode::database;
    }
}

// Errors that no single row can cause.
constexpr std::array kNumbersOfAll{
    1017U, 1021U, 1030U, 1036U,  // file not found, disk full, storage engine, read-only table
    1037U, 1038U, 1040U, 1041U,  // memory, connections
    1044U, 1045U, 1142U, 1143U,  // rights
    1046U, 1049U, 1051U, 1054U,  // no database, unknown database, table, column
    1053U, 1064U, 1099U, 1100U,  // shutdown, syntax, locked tables
    1114U, 1136U, 1146U, 1152U,  // table full, columns and values, no such table, connection
    1180U, 1184U, 1194U, 1195U,  // commit, connection, crashed tables
    1203U, 1205U, 1206U, 1213U,  // connections, lock wait, lock table full, deadlock
    1223U, 1226U, 1227U, 1290U,  // read lock, limits, rights, read only
    1305U, 1317U, 1356U, 1370U,  // no such routine, interrupted, invalid view, rights
    1412U, 1449U, 1461U, 1615U,  // table has changed, no definer, prepared statements
    1467U,                       // a counter of rows that a bulk insert holds
    1792U, 1836U, 1927U, 1969U,  // read only, killed, statement timeout
    3024U, 3032U, 4031U,         // statement timeout, offline, idle for too long
};

SqlCondition condition_of(unsigned number, std::string_view text) {
    const auto says = [&](std::string_view words) {
        return text.find(words) != std::string_view::npos;
    };
    if (says_reads_only(number, text)) return SqlCondition::read_only;
    switch (number) {
        case 1205:  // ER_LOCK_WAIT_TIMEOUT
        case 1213:  // ER_LOCK_DEADLOCK
        case 1467:  // ER_AUTOINC_READ_FAILED: 1205 or 1213 at the lock of AUTO_INCREMENT
            return SqlCondition::transaction_conflict;
        case 1317:  // ER_QUERY_INTERRUPTED
            return SqlCondition::query_canceled;
        case 1243:  // ER_UNKNOWN_STMT_HANDLER
        case 1615:  // ER_NEED_REPREPARE
            return SqlCondition::invalid_statement_name;
        case 1040:  // ER_CON_COUNT_ERROR
        case 1203:  // ER_TOO_MANY_USER_CONNECTIONS
            return SqlCondition::too_many_connections;
        case 1226:  // ER_USER_LIMIT_REACHED: the other limits are per hour.
            return says("max_user_connections") ? SqlCondition::too_many_connections
                                                : SqlCondition::of_all_writes;
        case 1461:  // ER_MAX_PREPARED_STMT_COUNT_REACHED
            return SqlCondition::too_many_statements;
        case 1146:  // ER_NO_SUCH_TABLE
            return SqlCondition::undefined_table;
        case 1264:  // ER_WARN_DATA_OUT_OF_RANGE: names the column; hotcount's own is n, 64 bits.
            return says("'n'") ? SqlCondition::unspecified : SqlCondition::narrow_column;
        default:
            break;
    }
    const bool of_all =
        is_clients_own(number) ||
        std::find(kNumbersOfAll.begin(), kNumbersOfAll.end(), number) != kNumbersOfAll.end();
    return of_all ? SqlCondition::of_all_writes : SqlCondition::unspecified;
}

constexpr std::string_view kLostRights =
    "; a trigger runs with the rights of the account that created it, which was dropped or has "
    "lost TRIGGER: create_tables() by an account with TRIGGER recreates hotcount's triggers";

// The setting or the missing rights behind an error whose message does not name them.
std::string_view cause_of(unsigned number, std::string_view text) {
    switch (number) {
        case 1047:
            return text.starts_with("WSREP")
                       ? "; this node is not in its cluster's primary component, or joins it"
                       : std::string_view{};
        case 1142:
            return text.starts_with("TRIGGER ") ? kLostRights : std::string_view{};
        case 1449:
            return kLostRights;
        case 1461:
            return "; max_prepared_stmt_count bounds the statements of all the server's clients";
        case 1317:
            return "; another client ran KILL QUERY on the session";
        case 1969:
            return "; the setting is max_statement_time, the server's or the user's";
        case 3024:
            return "; the setting is max_execution_time";
        default:
            return {};
    }
}

// ER_UNKNOWN_COM_ERROR: a Galera node that is joining its cluster or has left it runs no command.
bool is_not_run(unsigned number) { return number == 1047; }

// Removes the database from qualified names. Names are quoted: "app"."vote", or with backticks.
std::string without_databases(std::string_view text) {
    std::string kept;
    bool in_chain = false;
    for (std::size_t at = 0; at < text.size();) {
        const char quote = text[at];
        const bool is_name = quote == '`' || quote == '"';
        const std::size_t end = is_name ? text.find(quote, at + 1) : std::string_view::npos;
        if (end == std::string_view::npos) {
            kept += text[at++];
            in_chain = false;
            continue;
        }
        const std::string dot{'.', quote};
        const bool is_first = text.substr(end + 1, 2) == dot && !in_chain;
        if (!is_first) kept += text.substr(at, end + 1 - at);
        at = end + (is_first ? 2 : 1);
        if (in_chain && text.substr(at, 2) == dot) kept += text[at++];
        in_chain = true;
    }
    return kept;
}

}  // namespace

// The client library's errors have the numbers 2000 to 2999 and 5000 to 5999.
bool is_clients_own(unsigned number) {
    return (number >= 2000 && number < 3000) || (number >= 5000 && number < 6000);
}

bool says_reads_only(unsigned number, std::string_view text) {
    if (number == 1836) return true;  // ER_READ_ONLY_MODE
    const bool option = text.find("read-only") != std::string_view::npos ||
                        text.find("read_only") != std::string_view::npos;
    return number == 1290 && option;
}

bool breaks_connection(unsigned number) {
    if (is_clients_own(number)) return true;
    switch (number) {
        case 1047:  // ER_UNKNOWN_COM_ERROR: another node may be in its cluster.
        case 1053:
        case 1152:
        case 1184:
        case 1927:
        case 3032:
        case 4031:
            return true;
        default:
            return false;
    }
}

Error password_kept(const std::string& name, const std::string& method) {
    return make_error(
        ErrorCode::auth,
        name + ": the server asks for the password in clear text, or in a way that it can read" +
            (method.empty() ? "" : " (its method is \"" + method + "\")") +
            ", and has not proved its identity: the password was not sent. Connect over verified "
            "TLS (?ssl_ca=FILE or ?ssl_fingerprint=HEX) or a Unix socket");
}

Error first_login_refused(const std::string& name) {
    return make_error(
        ErrorCode::auth,
        name +
            ": the server asks for the password itself, and has not proved its identity: the "
            "password "
            "was not sent. A server does so if the password is wrong, and at the first login of "
            "the account after a start of the server or a change of the password "
            "(caching_sha2_password). Log in over verified TLS (?ssl_ca=FILE or "
            "?ssl_fingerprint=HEX) or a Unix socket; or let another client do that once "
            "(mysql --ssl-mode=VERIFY_CA --ssl-ca=FILE), and this login works until the server "
            "restarts");
}

Error mysql_failure(const std::string& name, MysqlStage stage, unsigned number,
                    std::string_view sqlstate, std::string_view text) {
    const bool reads_only = says_reads_only(number, text);
    ErrorCode code = reads_only ? ErrorCode::unavailable : classify(number);
    const SqlCondition condition = condition_of(number, text);
    std::string message =
        hide_secrets(text) + " (" + std::to_string(number) + ", " + std::string{sqlstate} + ")";
    // These refusals of a commit are certain: a deadlock between the nodes of a cluster, the
    // server's read-only mode, a command that was not run, and a session that had ended before. Any
    // other error may come from after the point of no return.
    const bool refused =
        is_not_run(number) || number == 1213 || number == 1205 || number == 4031 || reads_only;
    const bool unknown =
        (stage == MysqlStage::commit && !refused) ||
        (stage == MysqlStage::alone && breaks_connection(number) && !is_not_run(number));
    if (unknown) {
        code = ErrorCode::outcome_unknown;
        message += "; it may or may not be applied";
    } else {
        const std::string_view cause = cause_of(number, text);
        message += cause;
        // The caller of a statement that commits itself determines the outcome.
        if (is_not_run(number) ||
            (stage != MysqlStage::alone && (code == ErrorCode::unavailable || !cause.empty()))) {
            message += "; nothing was applied";
        }
    }
    Error error = make_error(code, std::move(message), std::to_string(number), condition);
    if (stage == MysqlStage::connecting) {
        error.message.insert(0, name + ": ");
        return error;
    }
    if (may_be_one_writes_fault(error)) error.message = without_databases(error.message);
    return of_server(std::move(error), name);
}

}  // namespace hotcount::sql
