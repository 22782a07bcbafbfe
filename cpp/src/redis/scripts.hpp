// Helpers for callers of Lua scripts: checks of a script's reply, errors, and the submission of
// many calls of one script.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <hotcount/detail/redis/channel.hpp>
#include <hotcount/redis.hpp>
#include <memory>
#include <optional>
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

/// The duration in whole milliseconds, rounded up, as an argument of a script.
std::string milliseconds(Duration duration);
/// The error with the key added to its message and to its facts.
Error of_key(std::string_view key, const Error& error);
/// Whether the error is that of a request, whatever its keys: the server did not answer in time, or
/// took no call.
bool concerns_all_keys(const Error& error);
/// The error of an element of a batch. If concerns_all_keys(), the elements have it in common: a
/// text for each of 100,000 elements would take much longer than to wait for the deadline.
Error of_element(std::string_view key, const Error& error);
/// The same, of an element that failed: a shared Error stays shared.
template <class T>
Result<T> element_failed(std::string_view key, const Result<Reply>& failed) {
    if (concerns_all_keys(failed.error())) return failed_as<T>(failed);
    return of_key(key, failed.error());
}
/// The error for a reply of an unexpected shape. `who` is its subject in the message, e.g. "SCAN".
Error strange_reply(const std::string& server, std::string_view who);

/// A page of SCAN or SSCAN.
struct ScanPage {
    std::string next;
    std::vector<std::string> items;
};
Result<ScanPage> to_page(const std::string& server, Reply reply);

// -- how a call is sent -------------------------------------------------------------------------

/// For a synchronous call: its completion has run before submit() returns.
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

// -- many calls ---------------------------------------------------------------------------------

/// A large call on its way. Its portions are sent one after the other, and calls of others run in
/// between.
class InPortions : public std::enable_shared_from_this<InPortions> {
  public:
    InPortions(Channel& channel, Deadline deadline, const Cancelled* cancelled)
        : channel_(channel), deadline_(deadline), cancelled_(cancelled) {}
    virtual ~InPortions() = default;
    InPortions(const InPortions&) = delete;
    InPortions& operator=(const InPortions&) = delete;

    /// Sends the next portion, and further ones while answers come before submit() returns.
    void go_on() {
        while (auto request = next()) {
            other_side_done_.store(false, std::memory_order_relaxed);
            channel_.submit(
                std::move(*request), deadline_,
                [self = shared_from_this()](Result<Reply> reply) {
                    self->take_in(std::move(reply));
                    if (self->other_side_done_.exchange(true)) self->go_on();
                },
                cancelled_);
            // The answer may come before submit() returns, or in another thread. The later of the
            // two goes on.
            if (!other_side_done_.exchange(true)) return;
        }
        end();
    }

  private:
    /// Null after the last portion.
    virtual std::optional<Request> next() = 0;
    /// The answer to that portion.
    virtual void take_in(Result<Reply> reply) = 0;
    virtual void end() = 0;

    Channel& channel_;
    const Deadline deadline_;
    const Cancelled* const cancelled_;
    std::atomic<bool> other_side_done_{false};
};

/// Many calls of one combinable script, at least 1. `keys` and `arguments` are ordered by call;
/// each call has the same number of keys and the same number of arguments.
struct ScriptBatch {
    const Script& script;
    std::size_t calls;
    std::vector<std::string> keys;
    std::vector<std::string> shared;  ///< Arguments that all calls have in common.
    std::vector<std::string> arguments;
    Repeat repeat{Repeat::never};
};

/// Sends the batch. `settle` gets each call's reply or error, in any order; `done` is called last.
/// - The calls go in portions of 256 keys, one after the other: calls of others run in between.
/// - If the server refuses a portion because of a key (an ACL denies it), the portion is sent again
///   in 16 parts, and a part that is refused again call by call: only the calls on that key fail.
/// - In a cluster the calls are sent to all nodes at once, and several threads may call `settle`.
void submit_script_batch(Channel& channel, std::string server, ScriptBatch batch, Deadline deadline,
                         std::function<void(std::size_t call, Result<Reply>)> settle,
                         std::function<void()> done, const Cancelled* cancelled = nullptr);

}  // namespace hotcount::redis
