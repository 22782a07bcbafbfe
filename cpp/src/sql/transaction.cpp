#include <algorithm>
#include <array>
#include <hotcount/detail/sql/transaction.hpp>

#include "backoff.hpp"
#include "pool.hpp"

namespace hotcount::sql {
namespace {

// What a SQLSTATE begins with that no single row brings about. Not here: 22 (data), 23 and 44
// (constraints), 54 (an index row that is too large), P0 (RAISE), whatever a trigger invents, and what
// it borrows: 55000 (object not in prerequisite state) for a poll that is closed.
constexpr std::array<std::string_view, 19> kStatesOfAll{
    "08",     // connection
    "0A",     // not supported: a plan whose table has changed
    "25",     // state of the transaction; read only
    "26",     // name of a prepared statement
    "28",     // credentials
    "3D",     // name of the database
    "3F",     // name of the schema
    "40",     // rollback: deadlock, serialization
    "42P",    // a table, column, function or parameter that is not there, or is ambiguous
    "42601",  // syntax
    "427",    // names
    "428",    // types of columns
    "53",     // resources
    "55006",  // object in use
    "55P",    // object locked, parameter that cannot be changed
    "57",     // an operator or a timeout ends it
    "58",     // errors of the system
    "F0",     // configuration
    "XX",     // errors of the server's own
};

// MySQL's and MariaDB's numbers.
constexpr std::array kNumbersOfAll{
    1017, 1021, 1030, 1036,  // file not found, disk full, storage engine, read-only table
    1037, 1038, 1040, 1041,  // memory, connections
    1044, 1045, 1142, 1143,  // rights
    1046, 1049, 1051, 1054,  // no database, unknown database, table, column
    1053, 1064, 1099, 1100,  // shutdown, syntax, locked tables
    1114, 1136, 1146, 1152,  // table full, columns and values, no such table, connection
    1180, 1184, 1194, 1195,  // commit, connection, crashed tables
    1203, 1205, 1206, 1213,  // connections, lock wait, lock table full, deadlock
    1223, 1226, 1227, 1290,  // read lock, limits, rights, read only
    1305, 1317, 1356, 1370,  // no such routine, interrupted, invalid view, rights
    1412, 1449, 1461, 1615,  // table has changed, no definer, prepared statements
    1792, 1836, 1927, 1969,  // read only, killed, statement timeout
    3024,                    // statement timeout
};

constexpr std::array<std::string_view, 13> kSqliteCodesOfAll{
    "SQLITE_BUSY",   "SQLITE_LOCKED", "SQLITE_INTERRUPT", "SQLITE_NOMEM", "SQLITE_READONLY",
    "SQLITE_PERM",   "SQLITE_IOERR",  "SQLITE_CORRUPT",   "SQLITE_FULL",  "SQLITE_CANTOPEN",
    "SQLITE_SCHEMA", "SQLITE_NOTADB", "SQLITE_23",  // SQLITE_AUTH
};

bool concerns_all(const Error& error) {
    const std::string_view code = error.server_code;
    const auto begins = [&](std::string_view head) { return code.starts_with(head); };
    if (begins("SQLITE_")) {
        if (std::any_of(kSqliteCodesOfAll.begin(), kSqliteCodesOfAll.end(), begins)) return true;
        // There is no code of its own for a missing table or column.
        return code == "SQLITE_ERROR" && (error.message.find("no such ") != std::string::npos ||
                                          error.message.find("has no column") != std::string::npos);
    }
    // A grant that is missing. A policy on rows has the same code and other words.
    if (code == "42501") return error.message.find("permission denied") != std::string::npos;
    constexpr std::size_t kStateLength = 5;
    if (code.size() == kStateLength) {
        return std::any_of(kStatesOfAll.begin(), kStatesOfAll.end(), begins);
    }
    int number = 0;
    for (const char digit : code) number = number * 10 + (digit - '0');
    // 2000 to 2999: the client library's own, of the connection.
    if (number >= 2000 && number < 3000) return true;
    return std::find(kNumbersOfAll.begin(), kNumbersOfAll.end(), number) != kNumbersOfAll.end();
}

}  // namespace

bool may_be_one_writes_fault(const Error& error) {
    switch (error.code) {
        case ErrorCode::integrity:
        case ErrorCode::overflow:
            return true;
        case ErrorCode::database:
        case ErrorCode::permission_denied:  // A policy on rows, or a trigger, may say so.
            return !concerns_all(error);
        default:
            return false;
    }
}

namespace {

// Each is one of PostgreSQL's SQLSTATEs or MySQL's numbers.
template <std::size_t N>
bool is_one_of(const std::array<std::string_view, N>& codes, const Error& error) {
    return std::find(codes.begin(), codes.end(), error.server_code) != codes.end();
}

// Another transaction was in the way. SQLITE_BUSY is not among them: the busy handler has waited
// until the deadline then.
constexpr std::array<std::string_view, 5> kInTheWay{
    "40001",  // serialization_failure
    "40P01",  // deadlock_detected
    "55P03",  // lock_not_available
    "1205",   // ER_LOCK_WAIT_TIMEOUT
    "1213",   // ER_LOCK_DEADLOCK
};
// The session does not have the statement that we had prepared there, or another in its place: the
// connection prepares it anew, or no more. A connection reports these as unavailable.
constexpr std::array<std::string_view, 5> kStatementGone{
    "26000",  // invalid_sql_statement_name
    "42P05",  // duplicate_prepared_statement
    "0A000",  // feature_not_supported: cached plan must not change result type
    "1243",   // ER_UNKNOWN_STMT_HANDLER
    "1615",   // ER_NEED_REPREPARE
};
// Or it has none any more: idle_session_timeout ended it while ours was on its way there.
constexpr std::string_view kIdleSessionTimeout = "57P05";
// The server is no primary any more. A connection reports these as unavailable if that is so.
constexpr std::array<std::string_view, 3> kReadsOnly{
    "25006",  // read_only_sql_transaction
    "1290",   // ER_OPTION_PREVENTS_STATEMENT: --read-only
    "1836",   // ER_READ_ONLY_MODE
};

bool concerns_the_server(const Error& error) {
    return error.code == ErrorCode::unavailable && is_one_of(kReadsOnly, error);
}
// max_prepared_stmt_count: other clients' statements come and go.
bool lacks_statements(const Error& error) {
    return error.code == ErrorCode::unavailable && error.server_code == "1461";
}
// What takes longer to pass than another transaction does.
bool waits_for_server(const Error& error) {
    return concerns_the_server(error) || lacks_statements(error) || is_out_of_room(error);
}

}  // namespace

bool is_transient(const Error& error) {
    // An outcome that is unknown may have been a success: doing it again is the caller's to decide.
    if (error.code == ErrorCode::outcome_unknown) return false;
    return is_one_of(kInTheWay, error) || waits_for_server(error) ||
           (error.code == ErrorCode::unavailable &&
            (is_one_of(kStatementGone, error) || error.server_code == kIdleSessionTimeout));
}

bool Retry::again(const Error& error) {
    if (!is_transient(error) || deadline_.passed()) return false;
    ++attempts_;
    if (concerns_the_server(error)) read_only_ = error;
    const BackoffRange range = waits_for_server(error) ? kServerBackoff : kLockBackoff;
    if (!pause_before_retry(range, attempts_, deadline_)) return false;
    database_.count_retry();
    return true;
}

Error Retry::give_up(Error error) const {
    if (read_only_ && (error.code == ErrorCode::deadline || error.code == ErrorCode::unavailable)) {
        error = *read_only_;
    }
    if (!is_transient(error)) return error;
    if (error.code != ErrorCode::unavailable) error.code = ErrorCode::deadline;
    static constexpr std::string_view kKnown = "; nothing was applied";
    if (error.message.ends_with(kKnown)) {
        error.message.resize(error.message.size() - kKnown.size());
    }
    error.message += "; the deadline passed after " + std::to_string(attempts_ + 1) +
                     " attempts; nothing was applied";
    return error;
}

}  // namespace hotcount::sql
