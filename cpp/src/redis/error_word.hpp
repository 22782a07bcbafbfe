// What a server's error reply leaves known, by its first word.
#pragma once

#include <hotcount/base/result.hpp>
#include <string_view>

namespace hotcount::redis {

/// `reply` is the error line without its "-"; `context` names server and command.
Error error_from_reply(std::string_view reply, std::string_view context);

}  // namespace hotcount::redis
