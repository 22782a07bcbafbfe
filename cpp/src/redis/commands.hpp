// The table of a server's commands: the connection that each may use, the shape of its reply, and
// its encoding (RESP: an array of bulk strings).
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/detail/redis/request.hpp>
#include <span>
#include <string>
#include <string_view>

namespace hotcount::redis {

/// Which connection takes a command.
enum class Place : std::uint8_t {
    shared,   ///< The shared connection: the command gets one reply and changes no session state.
    alone,    ///< An exclusive connection: the number of its replies is not known.
    refused,  ///< No connection: it would change or block a shared one.
};

struct KnownCommand {
    Place place;
    Shape shape;      ///< The possible types of its reply, apart from an error.
    bool only_reads;  ///< The command writes nothing, so it may be sent again after a lost reply.
};

/// Finds a command by its first word, and by its second if it has subcommands, in upper or lower
/// case. A command that is not in the table goes alone.
KnownCommand known_command(std::span<const std::string_view> words);

/// Whether this reply is possible for a command with replies of this shape.
inline bool fits(Shape shape, const Reply& reply) {
    return (static_cast<unsigned>(shape) >> reply.value.index() & 1U) != 0;
}

/// How long a call waits that the server will serve soon (is_transient_refusal()), before it is tried
/// again. `before`: its last such pause; 0 before the first.
inline Duration next_pause(Duration before) {
    constexpr Duration kFirst = std::chrono::milliseconds{5};
    constexpr Duration kLongest = std::chrono::milliseconds{100};
    return before == Duration{0} ? kFirst : std::min(2 * before, kLongest);
}

// -- encode.cpp -----------------------------------------------------------------------------------

void encode_command(std::string& out, std::span<const std::string_view> command);

// The same in pieces: a header that says how many words follow, then the words.
void encode_header(std::string& out, std::size_t words);
void encode_word(std::string& out, std::string_view word);
void encode_words(std::string& out, std::span<const std::string_view> words);

/// INCRBY key n; INCR key if n is 1.
void encode_add(std::string& out, std::string_view key, std::int64_t n);

/// The size of the first command in the bytes, which are whole commands that this client encoded.
std::size_t end_of_first(std::string_view commands);

}  // namespace hotcount::redis
