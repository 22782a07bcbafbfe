// What the files of RetryEngine have in common.
#pragma once

#include <atomic>
#include <hotcount/detail/base/codec.hpp>
#include <string>
#include <vector>

#include "retry_engine.hpp"

namespace hotcount {

namespace retry {

inline SteadyTime steady_now() { return std::chrono::steady_clock::now(); }

inline Error unknown(const std::string& key, const std::string& why) {
    return make_error(ErrorCode::outcome_unknown, "the add to " + printable(key) +
                                                      " was sent and not answered, and " + why +
                                                      "; it is counted once or not at all")
        .about(&ErrorFacts::key, key);
}

// Longer than the adds wait: a call that a paused server finds in its buffers comes late.
inline constexpr Duration kSlack = std::chrono::minutes{10};

inline std::string hex(std::uint64_t number) {
    constexpr std::string_view kDigits{"0123456789abcdef"};
    std::string text(16, '0');
    for (std::size_t i = 16; i-- > 0; number >>= 4) text[i] = kDigits[number & 15];
    return text;
}

// Redis was not reached or said nothing, or the client has no room: it will be tried again.
inline bool passes(ErrorCode code) {
    return code == ErrorCode::unavailable || code == ErrorCode::deadline ||
           code == ErrorCode::outcome_unknown || code == ErrorCode::capacity;
}

// The refusal of one add that will be sent again. A server that is full has answered.
inline bool passes_for(const Error& error) {
    return passes(error.code) && error.server_code != "OOM";
}

inline Error about(const UnsettledAdd& add, Error error) {
    error.about(&ErrorFacts::key, add.key);
    return error;
}

}  // namespace retry

// One call of the script under way, or of TIME.
struct RetryEngine::Flight {
    std::vector<UnsettledAdd> adds;
    bool replay{false};
    bool clock{false};
    SteadyTime begun{retry::steady_now()};
    Result<redis::Reply> outcome{redis::Reply{}};
    SteadyTime ended{};
    std::atomic<bool> finished{false};
};

// What one script call says of its adds.
struct RetryEngine::Call {
    bool timed;
    std::vector<std::string> keys;
    std::vector<std::string> arguments;

    // `accepted` as the script has it.
    void put(const UnsettledAdd& add, std::int64_t ttl_ms, std::string accepted) {
        keys.push_back(add.key);
        keys.push_back(key_beside(add.key, "retry." + retry::hex(add.writer)).value());
        if (timed) keys.push_back(key_beside(add.key, "window").value());
        arguments.push_back(std::to_string(add.n));
        arguments.push_back(std::to_string(add.sequence));
        arguments.push_back(timed ? std::to_string(add.ttl_ms > 0 ? add.ttl_ms : ttl_ms) : "");
        arguments.push_back(std::move(accepted));
    }

    // An add under way is accepted until its caller's deadline.
    static std::string until(const ServerClock& clock, SteadyTime deadline) {
        return "-" + std::to_string(clock.at(deadline) + 2 * clock.half_trip_ms);
    }

    redis::Request request(Duration max_age, std::size_t adds) const {
        const std::string keep = std::to_string(
            std::chrono::ceil<std::chrono::milliseconds>(max_age + retry::kSlack).count());
        const std::vector<std::string_view> key_views(keys.begin(), keys.end());
        const std::vector<std::string_view> argument_views(arguments.begin(), arguments.end());
        const std::string_view shared[] = {keep, timed ? "1" : ""};
        return redis::Request::run_many(script(), adds, key_views, shared, argument_views);
    }
};

}  // namespace hotcount
