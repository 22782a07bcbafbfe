// What concepts need for their Lua scripts: checks of what a script answers, its errors, and one call
// for many calls of a script.
#pragma once

#include <cstddef>
#include <functional>
#include <hotcount/detail/redis/channel.hpp>
#include <hotcount/redis.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotcount::redis {

// -- Script::Fits, in parts. An error is a valid element of an array. ---------------------------

inline bool is_error(const Reply& reply) { return std::holds_alternative<ReplyError>(reply.value); }

inline bool is_integer(const Reply& reply, std::size_t) {
    return std::holds_alternative<std::int64_t>(reply.value);
}

/// An integer, or a string: Lua returns numbers beyond 2^53 as text.
inline bool is_number(const Reply& reply, std::size_t) {
    return std::holds_alternative<std::int64_t>(reply.value) ||
           std::holds_alternative<std::string>(reply.value);
}

inline bool is_array(const Reply& reply, std::size_t) {
    return std::holds_alternative<ReplyArray>(reply.value);
}

/// An array with at least one element, each of which passes the check Each.
template <Script::Fits Each>
bool is_some(const Reply& reply, std::size_t) {
    const auto* const all = std::get_if<ReplyArray>(&reply.value);
    if (all == nullptr || all->empty()) return false;
    for (const Reply& one : *all) {
        if (!is_error(one) && !Each(one, 1)) return false;
    }
    return true;
}

/// An array of Size elements that pass the check Each.
template <std::size_t Size, Script::Fits Each>
bool is_tuple(const Reply& reply, std::size_t) {
    const auto* const all = std::get_if<ReplyArray>(&reply.value);
    return all != nullptr && all->size() == Size && is_some<Each>(reply, 1);
}

template <Script::Fits Each>
bool is_nil_or(const Reply& reply, std::size_t keys) {
    return std::holds_alternative<std::monostate>(reply.value) || Each(reply, keys);
}

/// An array with one element for each key of the call.
template <Script::Fits Each>
bool is_one_per_key(const Reply& reply, std::size_t keys) {
    const auto* const all = std::get_if<ReplyArray>(&reply.value);
    return all != nullptr && all->size() == keys && is_some<Each>(reply, 1);
}

// -- arguments and errors -----------------------------------------------------------------------

/// Rounded up.
std::string milliseconds(Duration duration);
/// The error of a call on this key, which the message and the error's fact name.
Error of_key(std::string_view key, const Error& error);
/// `who`, in words, got a reply that it cannot read.
Error strange_reply(const std::string& server, std::string_view who);

/// A page of SCAN or SSCAN.
struct ScanPage {
    std::string next;
    std::vector<std::string> items;
};
Result<ScanPage> to_page(const std::string& server, Reply reply);

// -- how a call is sent -------------------------------------------------------------------------

/// With this a call has completed when it returns.
inline AsyncCall waiting_call(Client& client, Timeout timeout) {
    return {&client.waiting(), timeout, nullptr, true};
}
inline Channel& channel_of(Client& client, const AsyncCall& call) {
    return call.channel != nullptr ? *call.channel : client.without_waiting();
}
inline void submit(Client& client, Request request, const AsyncCall& call, Completion<Reply> done) {
    channel_of(client, call)
        .submit(std::move(request), client.deadline(call.timeout), std::move(done), call.cancelled);
}

// -- many calls of one script -------------------------------------------------------------------

/// Many calls of one combinable script. `keys` and `arguments` hold those of the first call, of the
/// second ...: their sizes are multiples of the number of calls, which is at least 1.
struct ScriptBatch {
    const Script& script;
    std::size_t calls;
    std::vector<std::string> keys;
    std::vector<std::string> shared;  ///< Arguments that all calls have in common.
    std::vector<std::string> arguments;
    Repeat repeat{Repeat::never};
};

/// Sends the batch. `settle` gets each call's reply, or its error, in any order; `done` is called
/// after the last. The calls travel in portions of 256 keys, one portion after the other, so that
/// calls of others pass in between. When the server refuses a portion for one of its keys, such as
/// one that an ACL denies, the portion is sent again in 16 parts, and a part that is refused again
/// call by call: only the calls on that key fail. In a cluster they go to all nodes at once, and
/// `settle` may be called for several at the same time.
void submit_script_batch(Channel& channel, std::string server, ScriptBatch batch, Deadline deadline,
                         std::function<void(std::size_t call, Result<Reply>)> settle,
                         std::function<void()> done, const Cancelled* cancelled = nullptr);

}  // namespace hotcount::redis
