// What is known of a server's commands: where each may go, and what it answers.
#pragma once

#include <cstdint>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/detail/redis/request.hpp>
#include <span>
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
    Shape shape;      ///< What its reply can be; an error can be any.
    bool only_reads;  ///< Where nothing can have been applied a lost reply is no unknown outcome.
};

/// By its name and, where that has subcommands, the second word; in any case of letters. What is
/// not known goes alone.
KnownCommand known_command(std::span<const std::string_view> words);

/// Whether it can be the reply of a command that answers so.
inline bool fits(Shape shape, const Reply& reply) {
    return (static_cast<unsigned>(shape) >> reply.value.index() & 1U) != 0;
}

}  // namespace hotcount::redis
