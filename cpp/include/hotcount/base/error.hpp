// What can go wrong, in one enum: each code says what the caller knows afterwards.
//
// Core functions return Result<T> (result.hpp) carrying an Error; only python/src/errors.cpp turns
// one into an exception. Errors are values: free to copy, safe to hand between threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace hotcount {

enum class ErrorCode : std::uint8_t {
    unavailable,        ///< The backend cannot be reached or is not ready; nothing was applied.
    deadline,           ///< The deadline passed; nothing was applied.
    outcome_unknown,    ///< Sent, no answer: applied or not. Only an idempotent retry is safe.
    wrong_type,         ///< The key holds another type; nothing was applied.
    auth,               ///< Wrong or missing credentials.
    permission_denied,  ///< An ACL, a grant or the file system refuses.
    capacity,           ///< A bound was reached (queue, memory); nothing was applied.
    integrity,          ///< A constraint refuses (foreign key, unique); nothing was applied.
    overflow,           ///< The sum would leave signed 64 bits; nothing changed.
    config,             ///< A bad URL, key, option; the message names it.
    database,           ///< The database refused; server_code carries its own code.
    reply,              ///< The server answered with another error; server_code carries its word.
    closed,             ///< Used after close().
};

/// The code's name as spelled above, for messages and tables.
std::string_view to_string(ErrorCode code);

/// True where a failed call certainly changed nothing, so that doing it again is safe.
constexpr bool nothing_applied(ErrorCode code) { return code != ErrorCode::outcome_unknown; }

struct Error {
    ErrorCode code;
    std::string message;      ///< A sentence that names the offending thing; never a password.
    std::string server_code;  ///< SQLSTATE, SQLite code name or Redis error word; empty if none.
};

inline Error make_error(ErrorCode code, std::string message, std::string server_code = {}) {
    return Error{code, std::move(message), std::move(server_code)};
}

}  // namespace hotcount
