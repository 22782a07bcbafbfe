#include "connection.hpp"

#include <algorithm>
#include <array>
#include <hotcount/detail/sql/transaction.hpp>

#include "base/secrets.hpp"

namespace hotcount::sql {
namespace {

// The server's text as one line of at most 1,000 bytes, without secrets.
std::string message_line(std::string_view text) {
    constexpr std::size_t kLongest = 1000;
    std::string line;
    for (const char c : hide_secrets(text)) {
        const bool blank = c == '\n' || c == '\t' || c == ' ';
        if (!blank) {
            line += c;
        } else if (!line.empty() && line.back() != ' ') {
            line += ' ';
        }
    }
    if (!line.empty() && line.back() == ' ') line.pop_back();
    if (line.size() > kLongest) line = line.substr(0, kLongest) + "...";
    return line;
}

bool is_state_character(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z'); }

// The position of the SQLSTATE in "FATAL:  28P01: password ...", or npos. The server translates the
// word before it.
std::size_t find_state(std::string_view text) {
    constexpr std::size_t kLength = 5;
    for (auto at = text.find(":  "); at != std::string_view::npos; at = text.find(":  ", at + 1)) {
        const std::string_view state = text.substr(std::min(at + 3, text.size()), kLength);
        const std::string_view after = text.substr(std::min(at + 3 + kLength, text.size()), 2);
        if (state.size() == kLength && after == ": " &&
            std::all_of(state.begin(), state.end(), is_state_character)) {
            return at + 3;
        }
    }
    return std::string_view::npos;
}

// Names the setting (of the server, a role or a database) that ended the statement or session, if any.
// The server's own message may be in any language.
std::string_view setting_behind(std::string_view state, std::string_view said) {
    if (state == "57014") {
        if (said.find("user request") != std::string_view::npos) {
            return "; another client called pg_cancel_backend() on the session; nothing was "
                   "applied";
        }
        return "; the server's statement_timeout (its own, the database's or the role's) has "
               "passed, "
               "or pg_cancel_backend() was called; nothing was applied";
    }
    if (state == "25P03") return "; its setting is idle_in_transaction_session_timeout";
    if (state == "25P04") return "; its setting is transaction_timeout";
    if (state == "57P05") return "; its setting is idle_session_timeout";
    return {};
}

// Beginnings of SQLSTATEs that no single row causes. Not in this list: 22 (data), 23 and 44
// (constraints), 54 (an index row that is too large), P0 (RAISE), states that a trigger invents, and
// 55000 (object not in prerequisite state), which triggers use for closed polls.
constexpr std::array<std::string_view, 19> kStatesOfAll{
    "08",     // connection
    "0A",     // not supported: a plan whose table has changed
    "25",     // state of the transaction; read only
    "26",     // name of a prepared statement
    "28",     // credentials
    "3D",     // name of the database
    "3F",     // name of the schema
    "40",     // rollback: deadlock, serialization
    "42P",    // a table, column, function or parameter that is missing or ambiguous
    "42601",  // syntax
    "427",    // names
    "428",    // types of columns
    "53",     // resources
    "55006",  // object in use
    "55P",    // object locked, parameter that cannot be changed
    "57",     // ended by an operator or a timeout
    "58",     // system errors
    "F0",     // configuration
    "XX",     // internal errors
};

// PgBouncer's messages for a full pool; it has no SQLSTATE of its own for that.
constexpr std::array<std::string_view, 4> kPoolerIsFull{
    "no more connections allowed", "client connections exceeded", "query_wait_timeout",
    "server login has been failing"};

}  // namespace

ErrorCode classify_sqlstate(std::string_view state) {
    // serialization_failure, deadlock_detected, lock_not_available
    if (state == "40001" || state == "40P01" || state == "55P03") return ErrorCode::deadline;
    if (state == "57014") return ErrorCode::deadline;  // query_canceled: a timeout of the server.
    if (state == "22003") return ErrorCode::overflow;
    if (state == "42501" || state == "25006") return ErrorCode::permission_denied;
    if (state.starts_with("23")) return ErrorCode::integrity;
    if (state.starts_with("28")) return ErrorCode::auth;
    // The server is down, is starting, or has no room for another session.
    if (state.starts_with("08") || state.starts_with("57P") || state == "53300") {
        return ErrorCode::unavailable;
    }
    return ErrorCode::database;
}

SqlCondition condition_of_sqlstate(std::string_view state, std::string_view said) {
    const auto says = [&](std::string_view words) {
        return said.find(words) != std::string_view::npos;
    };
    const auto begins = [&](std::string_view head) { return state.starts_with(head); };
    // serialization_failure, deadlock_detected, lock_not_available
    if (state == "40001" || state == "40P01" || state == "55P03") {
        return SqlCondition::transaction_conflict;
    }
    if (state == "57014") return SqlCondition::query_canceled;
    if (state == "57P05") return SqlCondition::idle_session_timeout;
    if (state == "25006") return SqlCondition::read_only;
    if (state == "42P01") return SqlCondition::undefined_table;
    const bool pooler =
        state == "08P01" && std::any_of(kPoolerIsFull.begin(), kPoolerIsFull.end(), says);
    if (state == "53300" || pooler) return SqlCondition::too_many_connections;
    // numeric_value_out_of_range: the message names the type in every language.
    if (state == "22003" && !says("bigint")) return SqlCondition::narrow_column;
    // A missing grant. The refusal of a row policy has the same SQLSTATE and another message.
    const bool grant = state == "42501" && says("permission denied");
    return grant || std::any_of(kStatesOfAll.begin(), kStatesOfAll.end(), begins)
               ? SqlCondition::of_all_writes
               : SqlCondition::unspecified;
}

Error postgres_failure(const Libpq& pq, const pg_result* result, const std::string& name) {
    const auto field = [&](int which) -> std::string_view {
        const char* text = pq.PQresultErrorField(result, which);
        return text != nullptr ? std::string_view{text} : std::string_view{};
    };
    const std::string state{field(pq::kSqlState)};
    std::string message;
    if (field(pq::kPrimary).empty()) {
        message = message_line(pq.PQresultErrorMessage(result));
    } else {
        message = message_line(field(pq::kPrimary));
        // The detail names the key that violates a constraint.
        if (!field(pq::kDetail).empty()) message += ": " + message_line(field(pq::kDetail));
    }
    if (!state.empty()) message += " (SQLSTATE " + state + ")";
    message += setting_behind(state, field(pq::kPrimary));
    return of_server(
        make_error(state.empty() ? ErrorCode::database : classify_sqlstate(state),
                   std::move(message), state, condition_of_sqlstate(state, field(pq::kPrimary))),
        name);
}

bool ends_session(const Libpq& pq, const pg_result* result) {
    const char* severity = pq.PQresultErrorField(result, pq::kSeverity);
    const std::string_view word = severity != nullptr ? severity : "";
    return word == "FATAL" || word == "PANIC";
}

Error connect_failure(const Libpq& pq, const pg_conn* connection, const std::string& name) {
    const std::string text = pq.PQerrorMessage(connection);
    const std::size_t at = find_state(text);
    if (at != std::string::npos) {
        const std::string state = text.substr(at, 5);
        // The next line is the position in the server's source.
        const std::string said = message_line(text.substr(at + 7, text.find('\n', at) - at - 7));
        return make_error(classify_sqlstate(state),
                          name + ": " + said + " (SQLSTATE " + state + ")", state,
                          condition_of_sqlstate(state, said));
    }
    const bool refused = text.find("authentication method requirement") != std::string::npos;
    if (refused && text.find("cleartext password") != std::string::npos) {
        return make_error(ErrorCode::auth, name + kClearTextRefused);
    }
    const bool needed = pq.PQconnectionNeedsPassword(connection) != 0;
    return make_error(needed || refused ? ErrorCode::auth : ErrorCode::unavailable,
                      name + ": " + message_line(text));
}

std::string connection_message(const Libpq& pq, const pg_conn* connection) {
    return message_line(pq.PQerrorMessage(connection));
}

}  // namespace hotcount::sql
