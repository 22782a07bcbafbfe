// The calls of RedisSets. RedisSteps has those that take several round trips and wait for each: upserts
// with ttl_gate, and sweep(). upsert_by_script() runs upsert.lua. Before them stands what the files over
// Redis share: numbers as arguments, and replies as numbers.
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

/// The server's name, for messages. Completions share it: they outlive the sets perhaps.
using Server = std::shared_ptr<const std::string>;

/// The shortest digits that bring the double back as it was, whatever the process's locale is.
inline std::string to_text(double score) {
    std::array<char, 32> text;  // "-2.2250738585072014e-308" is the longest.
    const auto end = std::to_chars(text.data(), text.data() + text.size(), score).ptr;
    return {text.data(), end};
}

/// The server ran what nobody can make sense of the answer to.
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

    // After *cancelled is set the next step is not sent; its elements are `failed`, which nobody hears.
    Upserts upsert(std::span<const Element> elements, std::size_t batch, Deadline deadline,
                   const redis::Cancelled* cancelled) const;
    Result<SweepReport> sweep(const std::string& pattern, bool dry_run, Timeout timeout,
                              const redis::Cancelled* cancelled) const;
    /// By when a sweep ends that is given no timeout, too.
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

// -- upserts by upsert.lua -------------------------------------------------------------------------
//
// One, which travels with others that wait beside it, or a list of them, batch
// by batch.

/// How a call reaches the server.
struct Sender {
    redis::Channel& channel;
    Deadline deadline;
    const redis::Cancelled* cancelled;
    Server server;

    void operator()(redis::Request request, Completion<redis::Reply> done) const {
        channel.submit(std::move(request), deadline, std::move(done), cancelled);
    }
};

/// What upsert.lua is told of all elements, in ms. Shared as Server is.
struct UpsertLimits {
    std::string gate;
    std::string keep;
};
using Limits = std::shared_ptr<const UpsertLimits>;

void upsert_by_script(const Sender& send, Limits limits, LiveSetsBackend::Element element,
                      Completion<Upsert> done);

/// What goes again is done before the next batch is sent: the last upsert of a member stands.
void upsert_by_script(const Sender& send, Limits limits,
                      std::vector<LiveSetsBackend::Element> elements, std::size_t batch,
                      Completion<LiveSetsBackend::Upserts> done);

}  // namespace hotcount::zset
