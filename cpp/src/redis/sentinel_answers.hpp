// Parses the answers of Sentinels about a service, and chooses the primary from several. Pure.
//
// A Sentinel that replaces a primary is elected first, promotes a replica, and then tells the others,
// which lag by about 1 s. So a single answer with a higher epoch outweighs all others, and a single
// Sentinel that has begun a failover is enough to stop writes to the old primary.
#pragma once

#include <cstdint>
#include <hotcount/detail/redis/options.hpp>
#include <hotcount/detail/redis/reply.hpp>
#include <hotcount/result.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace hotcount::redis {

struct SentinelAnswer {
    enum class Kind : std::uint8_t { none, primary, no_service, failed };

    Kind kind{Kind::none};
    Endpoint primary{};
    std::uint64_t epoch{0};
    bool replaces_it{false};  ///< This Sentinel has begun to replace `primary`.
    std::optional<Error> why{};

    static SentinelAnswer failed(Error error);
};

/// The answer in the replies to SENTINEL GET-MASTER-ADDR-BY-NAME and SENTINEL MASTER, sent
/// together. After a promotion the first names the new primary, the second for a while the old one.
SentinelAnswer read_answer(const Reply& address, const Reply& state, const std::string& context);

struct Primary {
    Endpoint endpoint;
    std::uint64_t epoch{0};
};

/// The primary with the highest config epoch, if a majority of all Sentinels answers. Its epoch is
/// at least `known_epoch`, unless all Sentinels agree on a lower one: they were set up anew.
/// Temporary errors have the server code MASTERDOWN.
Result<Primary> choose_primary(const Options& options, std::span<const SentinelAnswer> answers,
                               std::uint64_t known_epoch);

/// The error while `primary` is being replaced: calls wait until its successor is known.
Error being_replaced(const Options& options, const Endpoint& primary);

/// The channels of a Sentinel: before it replaces a primary, and after a primary was replaced.
inline constexpr std::string_view kElected = "+elected-leader";
inline constexpr std::string_view kSwitched = "+switch-master";

struct SentinelEvent {
    Endpoint old;
    std::optional<Endpoint> now;  ///< Null: no replica has been promoted yet.
};
/// Returns nullopt if the message is about another service or cannot be parsed.
std::optional<SentinelEvent> read_event(std::string_view channel, std::string_view text,
                                        std::string_view service);

}  // namespace hotcount::redis
