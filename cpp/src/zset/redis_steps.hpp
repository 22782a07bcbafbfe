// Calls of LiveSets over Redis. RedisSteps makes the calls of several round trips and waits for
// each: upserts with ttl_gate, and sweep(). upsert_by_script() runs upsert.lua. Helpers convert
// numbers to arguments and replies to numbers.
#pragma once

#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/result.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backend.hpp"
#include "redis/scripts.hpp"

namespace hotcount::zset {

/// The server's name, for messages. Shared, because completions may outlive the sets.
using Server = std::shared_ptr<const std::string>;

/// The shortest digits from which the double is read back exactly, in any locale.
inline std::string to_text(double score) {
    std::array<char, 32> text;  // "-2.2250738585072014e-308" is the longest.
    const auto end = std::to_chars(text.data(), text.data() + text.size(), score).ptr;
    return {text.data(), end};
}

/// The error for an unexpected reply to a command that may have been applied.
inline Error unknown(const std::string& server, std::string_view what) {
    return make_error(ErrorCode::outcome_unknown, redis::strange_reply(server, what).message +
                                                      "; it may or may not be applied");
}

inline Result<std::int64_t> integer(const std::string& server, const redis::Reply& reply) {
    if (const auto number = redis::to_integer(reply)) return *number;
    if (const auto* error = std::get_if<redis::ReplyError>(&reply.value)) {
        return redis::error_from_reply(error->message, server);
    }
    return redis::strange_reply(server, "an integer reply");
}
inline Result<std::int64_t> integer(const std::string& server, const Result<redis::Reply>& reply,
                                    const std::string& key) {
    if (!reply) return redis::of_key(key, reply.error());
    return integer(server, *reply);
}

class RedisSteps {
  public:
    using Element = LiveSetsBackend::Element;
    using Upserts = LiveSetsBackend::Upserts;

    RedisSteps(std::shared_ptr<redis::Client> client, Duration gate, Server server)
        : client_(std::move(client)), gate_(gate), server_(std::move(server)) {}

    // Once *cancelled is set, no further step is sent; the rest of the elements fail.
    Upserts upsert(std::span<const Element> elements, std::size_t batch, Deadline deadline,
                   const redis::Cancelled* cancelled) const;
    Result<SweepReport> sweep(const std::string& pattern, bool dry_run, Timeout timeout,
                              const redis::Cancelled* cancelled) const;
    /// The end of a sweep, also of one without a timeout.
    Deadline sweep_deadline(Timeout timeout) const;

  private:
    using Commands = std::vector<std::vector<std::string_view>>;

    Upserts look_then_add(std::span<const Element> elements, Deadline deadline,
                          const redis::Cancelled* cancelled) const;
    Upsert state_of(std::int64_t pttl) const;
    Result<std::vector<std::string_view>> without_ttl(std::span<const std::string> keys,
                                                      Timeout timeout) const;

    const std::shared_ptr<redis::Client> client_;
    const Duration gate_;
    const Server server_;
};

// -- upserts by upsert.lua ------------------------------------------------------------------------
//
// One upsert, which shares a script call with other queued upserts, or a list in batches.

/// Sends a request of a call with the call's deadline.
struct Sender {
    redis::Channel& channel;
    Deadline deadline;
    const redis::Cancelled* cancelled;
    Server server;

    void operator()(redis::Request request, Completion<redis::Reply> done) const {
        channel.submit(std::move(request), deadline, std::move(done), cancelled);
    }
};

/// The arguments of upsert.lua that all elements share, in ms.
struct UpsertLimits {
    std::string gate;
    std::string keep;
};
using Limits = std::shared_ptr<const UpsertLimits>;

void upsert_by_script(const Sender& send, Limits limits, LiveSetsBackend::Element element,
                      Completion<Upsert> done);

/// Retried elements end before the next batch is sent, so the last upsert of a member stands.
void upsert_by_script(const Sender& send, Limits limits,
                      std::vector<LiveSetsBackend::Element> elements, std::size_t batch,
                      Completion<LiveSetsBackend::Upserts> done);

}  // namespace hotcount::zset
