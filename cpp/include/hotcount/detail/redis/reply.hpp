// A server's reply as a value, the same for RESP2 and RESP3.
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
    /// Set where it is not the server's word but what we know of a command that got none.
    std::optional<ErrorCode> known{};
};

/// Simple strings and bulk strings are both std::string: their bytes.
struct Reply {
    std::variant<std::monostate, std::int64_t, double, bool, std::string, ReplyError, ReplyArray>
        value{};
};

/// What an error inside an array leaves known. `context` names server and command.
Error to_error(const ReplyError& error, std::string_view context);

}  // namespace hotcount::redis
