// What is known of a server's commands: over which connection each may go, what it answers, and how
// it looks as bytes (RESP: an array of bulk strings).
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
    shared,   ///< The one that callers share: it answers exactly once and leaves no state there.
    alone,    ///< One that the call has to itself: nobody knows how often it answers.
    refused,  ///< None: it would change or hold a connection that others use.
};

struct KnownCommand {
    Place place;
    Shape shape;      ///< What its reply can be; an error can be the reply of any command.
    bool only_reads;  ///< It applies nothing, so a lost reply is no unknown outcome.
};

/// Finds a command by its first word, and by its second if it has subcommands, in upper or lower
/// case. A command that is not in the table goes alone.
KnownCommand known_command(std::span<const std::string_view> words);

/// Whether a command whose replies have this shape can have this reply.
inline bool fits(Shape shape, const Reply& reply) {
    return (static_cast<unsigned>(shape) >> reply.value.index() & 1U) != 0;
}

/// How long a call waits that the server will serve soon (passes_soon()), before it is tried again.
/// `before`: its last such pause; 0 before the first.
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
