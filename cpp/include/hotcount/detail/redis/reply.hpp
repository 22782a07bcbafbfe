// A server's reply as a value, the same for RESP2 and RESP3, and its conversion to a number or to a
// hotcount::Error. Replies are values: free to copy, safe to hand between threads.
#pragma once

#include <cstdint>
#include <hotcount/error.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace hotcount::redis {

struct Reply;
using ReplyArray = std::vector<Reply>;

/// An error inside an array reply; a top-level one becomes a hotcount::Error.
struct ReplyError {
    std::string message;
    /// Set if the client made the error, because the command got no reply.
    std::optional<ErrorCode> known{};
};

/// Simple strings and bulk strings are both std::string, without conversion of their bytes.
struct Reply {
    std::variant<std::monostate, std::int64_t, double, bool, std::string, ReplyError, ReplyArray>
        value{};
};

/// The number that a reply holds: an integer, or a string of digits as GET, HGET and Lua return it.
/// The string must be as INCRBY writes it: "007", "-0" and " 7" are no numbers. Returns nullopt for
/// any other reply, nil and errors included.
std::optional<std::int64_t> to_integer(const Reply& reply);
/// The double that a reply holds, such as the score of a member. RESP2 returns it as a string.
std::optional<double> to_double(const Reply& reply);

/// The error that a caller gets for a ReplyError. `context` names server and command.
Error to_error(const ReplyError& error, std::string_view context);
/// The error for a server's error line, which is given without its leading "-". The first word of
/// the line, such as WRONGTYPE, selects the ErrorCode: see error_word().
Error error_from_reply(std::string_view reply, std::string_view context);

/// The first word of an error line. It becomes Error::server_code.
inline std::string_view error_word(std::string_view line) { return line.substr(0, line.find(' ')); }
/// Whether a server that answers with this error word applied nothing and will soon serve the call:
/// the server loads its data, is busy with a script, or is a replica during a failover or a move of
/// slots (LOADING, BUSY, TRYAGAIN, MASTERDOWN, READONLY).
bool is_transient_refusal(std::string_view word);
/// Whether the server may have refused a command with several keys because of one of them. The
/// other keys may be served without that key.
bool concerns_a_key(const Error& refusal);
/// Whether the user may not run the command at all, on any key.
bool denies_the_command(const Error& refusal);

}  // namespace hotcount::redis
