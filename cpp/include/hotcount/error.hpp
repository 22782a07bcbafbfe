// The errors of the library. Each code says what the caller knows about the outcome of the call.
//
// Core functions return a Result<T> (result.hpp) that may hold an Error; none throws. Errors are
// values: free to copy, safe to hand between threads.
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace hotcount {

enum class ErrorCode : std::uint8_t {
    unavailable,        ///< The backend cannot be reached or is not ready; nothing was applied.
    deadline,           ///< The deadline passed; nothing was applied.
    outcome_unknown,    ///< Sent and not answered: maybe applied. Only an idempotent retry is safe.
    wrong_type,         ///< The key holds another type; nothing was applied.
    auth,               ///< Wrong or missing credentials.
    permission_denied,  ///< An ACL, a grant or the file system refuses.
    capacity,           ///< A bound was reached (queue, memory); nothing was applied.
    integrity,          ///< A constraint refuses (foreign key, unique); nothing was applied.
    overflow,           ///< The sum would leave signed 64 bits; nothing changed.
    config,             ///< A bad URL, key or option; the message names it.
    database,           ///< The database refused; server_code carries its own code.
    reply,              ///< The server answered with another error; server_code carries its word.
    lease_lost,         ///< A builder of a set no longer holds its lease; nothing was applied.
    closed,             ///< The object was used after close().
};

/// The code's name as spelled above, for messages and tables.
std::string_view to_string(ErrorCode code);

/// Whether a call that failed with this code certainly changed nothing, so that a retry is safe.
constexpr bool nothing_applied(ErrorCode code) { return code != ErrorCode::outcome_unknown; }

/// The kind of a database's error, the same for all databases. Retries depend on it. The dialect
/// derives it from the database's own code, which no other layer reads. Where SQLSTATE has a
/// condition of this kind, the name is that condition's.
enum class SqlCondition : std::uint8_t {
    unspecified,           ///< One write alone may be the cause: a constraint, a trigger, a value.
    of_all_writes,         ///< Concerns every write alike: schema, rights, resources, the session.
    transaction_conflict,  ///< Deadlock, serialization failure, lock not available: rolled back.
    query_canceled,        ///< Cancelled: the statement waited for a row, or ran for too long.
    invalid_statement_name,  ///< The session does not have the prepared statement; nothing was run.
    idle_session_timeout,    ///< The session had ended before the statement came.
    read_only,               ///< The server accepts no writes: it is not, or no longer, a primary.
    host_lost,  ///< One of several hosts was lost with nothing applied: another may take over.
    too_many_connections,  ///< The server, or a pooler before it, has no room for another session.
    too_many_statements,   ///< The server has no room for another prepared statement.
    undefined_table,
    narrow_column,  ///< A number is out of the range of a column that has less than 64 bits.
};

/// The parts of an error's message, for programs. A part that the message does not have is empty.
struct ErrorFacts {
    std::string server;               ///< The server, as messages name it.
    std::optional<Duration> timeout;  ///< The timeout of the call.
    std::string key;                  ///< In full; a message may shorten it.
    std::string option;               ///< The option or argument that is bad.
    std::string value;                ///< The value of the option, as text; never a password.
    /// The ids of a vote, as the tables hold them.
    std::optional<std::variant<std::int64_t, std::string>> item, user;
    std::string missing;  ///< "item" or "user": the row whose absence made a vote fail.
    /// The session whose COMMIT got no answer, as its dialect names it (sql/transaction.hpp).
    std::string lost_session;
};

struct Error {
    ErrorCode code;
    std::string message;      ///< A sentence that names the offending thing; never a password.
    std::string server_code;  ///< SQLSTATE, SQLite code name or Redis error word; empty if none.
    std::shared_ptr<const ErrorFacts> facts{};  ///< Null if there are none.
    SqlCondition condition{SqlCondition::unspecified};

    /// The same error with one more fact: make_error(...).about(&ErrorFacts::key, key).
    template <class Fact, class Says>
    Error&& about(Fact ErrorFacts::*fact, const Says& says) && {
        about(fact, says);
        return std::move(*this);
    }
    template <class Fact, class Says>
    void about(Fact ErrorFacts::*fact, const Says& says) & {
        auto all = facts ? std::make_shared<ErrorFacts>(*facts) : std::make_shared<ErrorFacts>();
        (*all).*fact = Fact{says};
        facts = std::move(all);
    }
};

inline Error make_error(ErrorCode code, std::string message, std::string server_code = {},
                        SqlCondition condition = SqlCondition::unspecified) {
    return Error{code, std::move(message), std::move(server_code), {}, condition};
}

/// A config error about an option or argument: "{option} {says}", such as "slots is 0; at least 1".
inline Error bad_option(std::string_view option, std::string_view says, std::string value = {}) {
    Error error = make_error(ErrorCode::config, std::string{option}.append(" ").append(says));
    error.about(&ErrorFacts::option, option);
    if (!value.empty()) error.about(&ErrorFacts::value, value);
    return error;
}

/// bad_option() for a number: "slots is 0; at least 1".
template <class Number>
Error bad_value(std::string_view option, Number value, std::string_view takes) {
    const std::string text = std::to_string(value);
    return bad_option(option, "is " + text + "; " + std::string{takes}, text);
}

}  // namespace hotcount
