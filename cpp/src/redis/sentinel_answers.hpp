// What Sentinels say about a service, and what follows from the answers of several. Pure.
//
// A Sentinel that replaces a primary is elected first, promotes a replica, and then tells the others,
// which lag by about a second. So one Sentinel with a higher epoch is right against all others; and one
// that has begun to replace a primary says that nobody should write to it any more.
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
    bool replaces_it{false};  ///< It has begun to replace that primary.
    std::optional<Error> why{};

    static SentinelAnswer failed(Error error);
};

/// The answer in the replies to SENTINEL GET-MASTER-ADDR-BY-NAME and SENTINEL MASTER, sent together. The
/// first is right already when the second still names the old primary.
SentinelAnswer read_answer(const Reply& address, const Reply& state, const std::string& context);

struct Primary {
    Endpoint endpoint;
    std::uint64_t epoch{0};
};

/// The primary: where a majority of all Sentinels answers, the one with the highest config epoch. It is
/// never older than `known_epoch`, unless all Sentinels agree, which were set up anew then. Errors that
/// pass by themselves have the server code MASTERDOWN.
Result<Primary> choose_primary(const Options& options, std::span<const SentinelAnswer> answers,
                               std::uint64_t known_epoch);

/// Calls wait until its successor is known.
Error being_replaced(const Options& options, const Endpoint& primary);

/// What Sentinels publish when a primary is about to be replaced, and when it has been.
inline constexpr std::string_view kElected = "+elected-leader";
inline constexpr std::string_view kSwitched = "+switch-master";

struct SentinelEvent {
    Endpoint old;
    std::optional<Endpoint> now;  ///< None: its successor is not elected yet.
};
/// None if the message is about another service, or makes no sense.
std::optional<SentinelEvent> read_event(std::string_view channel, std::string_view text,
                                        std::string_view service);

}  // namespace hotcount::redis
