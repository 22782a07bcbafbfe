#include <algorithm>
#include <array>
#include <charconv>
#include <hotcount/detail/redis/reply.hpp>
#include <string>

#include "base/secrets.hpp"

namespace hotcount::redis {
namespace {

// The reason for a refusal by a node of a cluster; null for other refusals. Waiting does not help a
// client of a single node: this is a configuration error, not an outage to which a limiter's policy
// applies.
const char* refused_by_cluster(std::string_view word, std::string_view reply) {
    struct Refusal {
        std::string_view word;
        const char* why;
    };
    static constexpr const char* kElsewhere =
        "another node of this Redis Cluster has the key's slot, and redis:// talks to one server: "
        "write redis+cluster://host:port";
    static constexpr const char* kSeveralSlots =
        "the keys of this call are in several slots of a Redis Cluster: give them one hash tag";
    static constexpr std::array<Refusal, 5> kRefusals{{
        {"MOVED", kElsewhere},
        {"ASK", kElsewhere},
        {"TRYAGAIN", kElsewhere},
        {"CLUSTERDOWN",
         "this server is a node of a Redis Cluster that serves no keys, or not this one: write "
         "redis+cluster://host:port, which waits for the node that does"},
        {"CROSSSLOT", kSeveralSlots},
    }};
    const auto* const found = std::ranges::find(kRefusals, word, &Refusal::word);
    if (found != kRefusals.end()) return found->why;
    const auto says = [&](const char* text) { return reply.find(text) != std::string_view::npos; };
    // The error of a script that uses an undeclared key.
    if (says("a non local key in a cluster node")) return kElsewhere;
    if (says("keys that do not hash to the same slot")) return kSeveralSlots;
    return nullptr;
}

ErrorCode classify(std::string_view word, std::string_view reply) {
    // The server refuses the command temporarily: nothing was applied.
    for (const char* not_now :
         {"LOADING", "READONLY", "MASTERDOWN", "MISCONF", "NOREPLICAS", "BUSY", "NOSCRIPT"}) {
        if (word == not_now) return ErrorCode::unavailable;
    }
    if (word == "WRONGTYPE") return ErrorCode::wrong_type;
    if (word == "NOAUTH" || word == "WRONGPASS") return ErrorCode::auth;
    if (word == "NOPERM") return ErrorCode::permission_denied;
    if (word == "OOM") return ErrorCode::capacity;
    const auto says = [&](const char* text) { return reply.find(text) != std::string_view::npos; };
    // The text of NOPERM inside a script.
    if (says("The user executing the script can't")) return ErrorCode::permission_denied;
    if (says("would overflow")) return ErrorCode::overflow;
    // A string that is not a number has the wrong type for a counter.
    if (says("value is not an integer")) return ErrorCode::wrong_type;
    if (says("DB index is out of range")) return ErrorCode::config;
    if (says("invalid password") || says("without any password configured")) return ErrorCode::auth;
    return ErrorCode::reply;
}

template <class Number>
std::optional<Number> parse(const std::string& text) {
    Number number{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc{} || stop != end) return std::nullopt;
    return number;
}

}  // namespace

std::optional<std::int64_t> to_integer(const Reply& reply) {
    if (const auto* const number = std::get_if<std::int64_t>(&reply.value)) return *number;
    const auto* const text = std::get_if<std::string>(&reply.value);
    if (text == nullptr) return std::nullopt;
    const auto number = parse<std::int64_t>(*text);
    return number && std::to_string(*number) == *text ? number : std::nullopt;
}

std::optional<double> to_double(const Reply& reply) {
    if (const auto* const number = std::get_if<double>(&reply.value)) return *number;
    const auto* const text = std::get_if<std::string>(&reply.value);
    return text == nullptr ? std::nullopt : parse<double>(*text);
}

Error error_from_reply(std::string_view reply, std::string_view context) {
    const std::string shown = hide_secrets(reply);
    if (const char* const why = refused_by_cluster(error_word(reply), reply)) {
        return make_error(ErrorCode::config, std::string{context} + ": " + shown + ": " + why,
                          std::string{error_word(shown)});
    }
    const ErrorCode code = classify(error_word(reply), reply);
    std::string message = shown;
    if (code == ErrorCode::wrong_type || code == ErrorCode::overflow) {
        // An application may show the message to its user, so it has no server address.
        const std::size_t server = context.rfind(": ");
        context = server == std::string_view::npos ? "" : context.substr(server + 2);
    }
    if (!context.empty()) message = std::string{context} + ": " + shown;
    return make_error(code, std::move(message), std::string{error_word(shown)});
}

Error to_error(const ReplyError& error, std::string_view context) {
    if (error.known) return make_error(*error.known, error.message);
    return error_from_reply(error.message, context);
}

bool is_transient_refusal(std::string_view word) {
    static constexpr std::array<std::string_view, 5> kSoon{"LOADING", "BUSY", "TRYAGAIN",
                                                           "MASTERDOWN", "READONLY"};
    return std::find(kSoon.begin(), kSoon.end(), word) != kSoon.end();
}

bool denies_the_command(const Error& refusal) {
    // "User x has no permissions to run the 'evalsha' command", and before Redis 7 "this user ...".
    return refusal.server_code == "NOPERM" &&
           refusal.message.find("permissions to run the '") != std::string::npos;
}

bool concerns_a_key(const Error& refusal) {
    for (const char* one_key : {"MOVED", "ASK", "CROSSSLOT", "TRYAGAIN"}) {
        if (refusal.server_code == one_key) return true;
    }
    return refusal.server_code == "NOPERM" && !denies_the_command(refusal);
}

}  // namespace hotcount::redis
