// A server's reply as a value, the same for RESP2 and RESP3.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace hotcount::redis {

struct Reply;
using ReplyArray = std::vector<Reply>;

/// An error inside an array reply; a top-level one becomes a hotcount::Error.
struct ReplyError {
    std::string message;
};

/// Simple strings and bulk strings are both std::string: their bytes.
struct Reply {
    std::variant<std::monostate, std::int64_t, double, bool, std::string, ReplyError, ReplyArray>
        value{};
};

}  // namespace hotcount::redis
