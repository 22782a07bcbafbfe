// Commands as the bytes that go to the server: RESP arrays of bulk strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace hotcount::redis {

void encode_command(std::string& out, std::span<const std::string_view> command);

// The same in pieces: a header for so many words, then each of them.
void encode_header(std::string& out, std::size_t words);
void encode_word(std::string& out, std::string_view word);

/// INCRBY key n, or INCR key.
void encode_add(std::string& out, std::string_view key, std::int64_t n);

/// Where the first command in the bytes ends. They are whole commands of ours.
std::size_t end_of_first(std::string_view commands);

}  // namespace hotcount::redis
