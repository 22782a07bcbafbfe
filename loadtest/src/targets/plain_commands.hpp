// Commands as a program with a plain client sends them: the unsafe ways that the library does not have.
#pragma once

#include <hotcount/redis.hpp>
#include <hotcount/result.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::loadtest {

/// Sends the commands together, WATCH and MULTI too, which Client::execute() refuses: MULTI to EXEC in
/// one call is safe on a connection that threads share, and WATCH needs a client of its own. The first
/// error among the replies is the call's error.
inline Result<redis::ReplyArray> send_plainly(
    redis::Client& client, const std::vector<std::vector<std::string_view>>& commands,
    Deadline deadline) {
    std::string bytes;
    for (const auto& words : commands) {
        bytes += "*" + std::to_string(words.size()) + "\r\n";
        for (const std::string_view word : words) {
            bytes += "$" + std::to_string(word.size()) + "\r\n";
            bytes.append(word).append("\r\n");
        }
    }
    Result<redis::Reply> outcome = redis::Reply{};
    // The channel waits: `done` is called before it returns.
    client.waiting().submit(
        redis::Request::encoded(std::string{commands.front().front()}, std::move(bytes),
                                commands.size(), redis::Shape::any, redis::Repeat::never),
        deadline, [&](Result<redis::Reply> reply) { outcome = std::move(reply); }, nullptr);
    if (!outcome) return std::move(outcome).error();
    auto replies = std::get<redis::ReplyArray>(std::move(outcome->value));
    for (const redis::Reply& reply : replies) {
        if (const auto* const error = std::get_if<redis::ReplyError>(&reply.value)) {
            return redis::error_from_reply(error->message, client.options().address());
        }
    }
    return replies;
}

}  // namespace hotcount::loadtest
