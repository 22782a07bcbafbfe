// Declarations that the files of RetryEngine share.
#pragma once

#include <atomic>
#include <charconv>
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

// The script remembers a number this much longer than its add can be counted, to cover errors in
// readings of the server's clock.
inline constexpr Duration kSlack = std::chrono::minutes{10};

inline std::string hex(std::uint64_t number) {
    constexpr std::string_view kDigits{"0123456789abcdef"};
    std::string text(16, '0');
    for (std::size_t i = 16; i-- > 0; number >>= 4) text[i] = kDigits[number & 15];
    return text;
}

// Redis was not reached or did not answer, or the client has no room: the call is tried again.
inline bool is_transient(ErrorCode code) {
    return code == ErrorCode::unavailable || code == ErrorCode::deadline ||
           code == ErrorCode::outcome_unknown || code == ErrorCode::capacity;
}

// An add with this refusal is sent again. OOM is the answer of a full server and is returned.
inline bool is_sent_again(const Error& error) {
    return is_transient(error.code) && error.server_code != "OOM";
}

// Reads the script's answer to an add whose period the server's clock refused; null for others.
inline std::optional<PeriodAnswer> refused_period(std::string_view word) {
    using Kind = PeriodAnswer::Kind;
    constexpr std::string_view kElsewhere{"elsewhere "};
    if (word == "gone") return PeriodAnswer{Kind::gone, 0, {}};
    if (word == "ahead") return PeriodAnswer{Kind::ahead, 0, {}};
    if (!word.starts_with(kElsewhere)) return {};
    std::int64_t now = 0;
    const std::string_view digits = word.substr(kElsewhere.size());
    std::from_chars(digits.data(), digits.data() + digits.size(), now);
    return PeriodAnswer{Kind::elsewhere, 0, Instant{std::chrono::seconds{now}}};
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

// The keys and arguments of one script call.
struct RetryEngine::Call {
    Mode mode;
    std::vector<std::string> keys{};
    std::vector<std::string> arguments{};

    std::size_t keys_each() const { return mode == Mode::ttl ? 3 : 2; }

    // `accepted`: the argument of that name in the script.
    void put(const UnsettledAdd& add, std::int64_t ttl_ms, std::string accepted) {
        keys.push_back(add.key);
        keys.push_back(key_beside(add.key, "retry." + retry::hex(add.writer)).value());
        if (mode == Mode::ttl) keys.push_back(key_beside(add.key, "window").value());
        arguments.push_back(std::to_string(add.n));
        arguments.push_back(std::to_string(add.sequence));
        arguments.push_back(life(add, ttl_ms));
        arguments.push_back(std::move(accepted));
        const auto known =
            std::chrono::ceil<std::chrono::milliseconds>(add.max_age + retry::kSlack);
        arguments.push_back((add.waits ? "" : "-") + std::to_string(add.since_ms + known.count()));
    }

    // The script's argument for the end of the key.
    std::string life(const UnsettledAdd& add, std::int64_t ttl_ms) const {
        if (mode == Mode::plain) return "";
        if (mode == Mode::ttl) return std::to_string(add.ttl_ms > 0 ? add.ttl_ms : ttl_ms);
        const auto unix_time = [](Instant at) {
            return std::to_string(at.time_since_epoch().count());
        };
        return unix_time(add.period->begins) + " " + unix_time(add.period->ends) + " " +
               unix_time(add.period->gone);
    }

    // `accepted` of an add under way. With a ttl the script accepts it until its caller's deadline.
    std::string under_way(const UnsettledAdd& add, const ServerClock& clock) const {
        if (mode == Mode::plain) return "";
        if (mode == Mode::period) return add.period->present ? "present" : "at";
        return "-" + std::to_string(clock.at(add.deadline) + 2 * clock.half_trip_ms);
    }

    redis::Request request(std::size_t adds) const {
        const std::vector<std::string_view> key_views(keys.begin(), keys.end());
        const std::vector<std::string_view> argument_views(arguments.begin(), arguments.end());
        constexpr std::string_view kModes[]{"", "1", "period"};
        const std::string_view shared[] = {kModes[static_cast<std::size_t>(mode)]};
        return redis::Request::run_many(script(), adds, key_views, shared, argument_views);
    }
};

}  // namespace hotcount
