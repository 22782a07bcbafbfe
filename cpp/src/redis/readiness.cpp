#include <algorithm>
#include <array>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/redis/health.hpp>
#include <string>
#include <utility>

#include "commands.hpp"

namespace hotcount::redis {
namespace {

// The errors of a server that refuses all writes. Other errors concern the user's permissions or
// the key.
constexpr std::array<std::string_view, 4> kTakesNoWrites{"READONLY", "OOM", "MISCONF",
                                                         "NOREPLICAS"};

// Whether the server may serve reads although it refused PING: it is a replica, its disk fails, or
// an ACL denies PING.
bool may_serve_reads(const Error& error) {
    return error.code == ErrorCode::permission_denied || error.server_code == "READONLY" ||
           error.server_code == "MISCONF";
}

// A write that changes no value and creates no key. A script returns its refusal as text, because
// the client would send a plain command with such a refusal again until the deadline.
const Script& try_write_script() {
    static const Script kScript{"return redis.pcall('SETRANGE', KEYS[1], 0, '').err or ''",
                                Script::Kind::single, [](const Reply& reply, std::size_t) {
                                    return std::holds_alternative<std::string>(reply.value);
                                }};
    return kScript;
}

Result<void> outcome_of(const std::string& server, const Result<Reply>& tried) {
    if (!tried) {
        const ErrorCode code = tried.error().code;
        if (code == ErrorCode::permission_denied || code == ErrorCode::reply) return {};
        return tried.error();
    }
    const auto* const refusal = std::get_if<std::string>(&tried->value);
    if (refusal == nullptr) return {};
    const std::string word{error_word(*refusal)};
    if (std::find(kTakesNoWrites.begin(), kTakesNoWrites.end(), word) == kTakesNoWrites.end()) {
        return {};
    }
    return make_error(ErrorCode::unavailable,
                      server + ": the server takes no writes now: " + printable(*refusal), word);
}

}  // namespace

void check_ready_async(Client& client, Access access, Completion<void> done,
                       const AsyncCall& call) {
    Channel& channel = call.channel != nullptr ? *call.channel : client.without_waiting();
    client.ping_async(
        [access, &channel, deadline = client.deadline(call.timeout), cancelled = call.cancelled,
         server = client.options().address(),
         key = full_key(client.options().prefix, "hotcount", "ready"),
         done = std::move(done)](Result<void> answered) {
            if (access == Access::reads) {
                const bool ready = answered || may_serve_reads(answered.error());
                return done(ready ? Result<void>{} : std::move(answered));
            }
            if (!answered && answered.error().code != ErrorCode::permission_denied) {
                return done(std::move(answered));
            }
            const std::string_view keys[] = {key};
            channel.submit(
                Request::run(try_write_script(), keys, {}, {}, Repeat::reads), deadline,
                [server, done](const Result<Reply>& tried) { done(outcome_of(server, tried)); },
                cancelled);
        },
        {&channel, call.timeout, call.cancelled});
}

Result<void> check_ready(Client& client, Access access, Timeout timeout) {
    Result<void> outcome;
    // The channel waits: `done` is called before it returns.
    check_ready_async(client, access, [&](Result<void> found) { outcome = std::move(found); },
                      {&client.waiting(), timeout});
    return outcome;
}

}  // namespace hotcount::redis
