// Commands as the bytes that go to the server.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hotcount::redis {

/// Appends the command as a RESP array of bulk strings.
void encode_command(std::string& out, std::span<const std::string_view> command);

}  // namespace hotcount::redis
