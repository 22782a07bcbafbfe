#include "dialect.hpp"

#include <sqlite3.h>

#include <cstring>
#include <hotcount/detail/sql/transaction.hpp>

namespace hotcount::sql {
namespace {

std::string code_name(int code) {
    switch (code) {
        case SQLITE_CONSTRAINT_FOREIGNKEY:
            return "SQLITE_CONSTRAINT_FOREIGNKEY";
        case SQLITE_CONSTRAINT_PRIMARYKEY:
            return "SQLITE_CONSTRAINT_PRIMARYKEY";
        case SQLITE_CONSTRAINT_UNIQUE:
            return "SQLITE_CONSTRAINT_UNIQUE";
        case SQLITE_CONSTRAINT_NOTNULL:
            return "SQLITE_CONSTRAINT_NOTNULL";
        case SQLITE_CONSTRAINT_CHECK:
            return "SQLITE_CONSTRAINT_CHECK";
        case SQLITE_CONSTRAINT_DATATYPE:
            return "SQLITE_CONSTRAINT_DATATYPE";
        case SQLITE_CONSTRAINT_TRIGGER:
            return "SQLITE_CONSTRAINT_TRIGGER";
        case SQLITE_IOERR_FSYNC:
            return "SQLITE_IOERR_FSYNC";
        case SQLITE_READONLY_DIRECTORY:
            return "SQLITE_READONLY_DIRECTORY";
        default:
            break;
    }
    switch (code & 0xff) {
        case SQLITE_ERROR:
            return "SQLITE_ERROR";
        case SQLITE_PERM:
            return "SQLITE_PERM";
        case SQLITE_BUSY:
            return "SQLITE_BUSY";
        case SQLITE_LOCKED:
            return "SQLITE_LOCKED";
        case SQLITE_NOMEM:
            return "SQLITE_NOMEM";
        case SQLITE_READONLY:
            return "SQLITE_READONLY";
        case SQLITE_INTERRUPT:
            return "SQLITE_INTERRUPT";
        case SQLITE_IOERR:
            return "SQLITE_IOERR";
        case SQLITE_CORRUPT:
            return "SQLITE_CORRUPT";
        case SQLITE_FULL:
            return "SQLITE_FULL";
        case SQLITE_CANTOPEN:
            return "SQLITE_CANTOPEN";
        case SQLITE_SCHEMA:
            return "SQLITE_SCHEMA";
        case SQLITE_TOOBIG:
            return "SQLITE_TOOBIG";
        case SQLITE_CONSTRAINT:
            return "SQLITE_CONSTRAINT";
        case SQLITE_MISMATCH:
            return "SQLITE_MISMATCH";
        case SQLITE_NOTADB:
            return "SQLITE_NOTADB";
        default:
            return "SQLITE_" + std::to_string(code);
    }
}

ErrorCode classify(int code, const char* text) {
    switch (code & 0xff) {
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
        case SQLITE_INTERRUPT:
            return ErrorCode::deadline;
        case SQLITE_READONLY:
        case SQLITE_PERM:
        case SQLITE_AUTH:
            return ErrorCode::permission_denied;
        case SQLITE_CONSTRAINT:
            return ErrorCode::integrity;
        case SQLITE_ERROR:
            // SUM() reports an overflow of 64 bits in this text; it has no code of its own.
            return std::strcmp(text, "integer overflow") == 0 ? ErrorCode::overflow
                                                              : ErrorCode::database;
        default:
            return ErrorCode::database;
    }
}

// Not a constraint, which one write alone may violate; nor SQLITE_ERROR, except where there is no
// code of its own for a missing table or column.
SqlCondition condition_of(int code, std::string_view text) {
    switch (code & 0xff) {
        case SQLITE_BUSY:  // No conflict that passes: the busy handler has waited until the deadline.
        case SQLITE_LOCKED:
        case SQLITE_INTERRUPT:
        case SQLITE_NOMEM:
        case SQLITE_READONLY:
        case SQLITE_PERM:
        case SQLITE_IOERR:
        case SQLITE_CORRUPT:
        case SQLITE_FULL:
        case SQLITE_CANTOPEN:
        case SQLITE_SCHEMA:
        case SQLITE_NOTADB:
        case SQLITE_AUTH:
            return SqlCondition::of_all_writes;
        case SQLITE_ERROR:
            if (text.find("no such ") != std::string_view::npos) {
                return SqlCondition::undefined_table;
            }
            return text.find("has no column") != std::string_view::npos
                       ? SqlCondition::of_all_writes
                       : SqlCondition::unspecified;
        default:
            return SqlCondition::unspecified;
    }
}

}  // namespace

Error sqlite_failure(sqlite3* connection, int code, const std::string& name) {
    const char* text = connection != nullptr ? sqlite3_errmsg(connection) : sqlite3_errstr(code);
    const ErrorCode classified = classify(code, text);
    std::string message = text;
    if ((code & 0xff) == SQLITE_BUSY) {
        message = "the deadline passed while another connection held the lock (" + message +
                  "); nothing was applied";
    } else if (code == SQLITE_INTERRUPT) {
        message = "the deadline passed in mid-statement; it was rolled back";
    }
    return of_server(
        make_error(classified, std::move(message), code_name(code), condition_of(code, text)),
        name);
}

}  // namespace hotcount::sql
