#include "sentinel_answers.hpp"

#include <algorithm>
#include <charconv>
#include <hotcount/detail/base/codec.hpp>
#include <variant>
#include <vector>

#include "server_role.hpp"

namespace hotcount::redis {
namespace {

using Said = SentinelAnswer::Kind;

std::optional<Endpoint> to_endpoint(std::string_view host, std::string_view port) {
    std::uint16_t number = 0;
    const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
    if (error != std::errc{} || end != port.data() + port.size() || number == 0 || host.empty()) {
        return {};
    }
    return Endpoint{std::string{host}, number};
}

std::vector<std::string_view> words_of(std::string_view text) {
    std::vector<std::string_view> words;
    while (!text.empty()) {
        words.push_back(text.substr(0, text.find(' ')));
        text.remove_prefix(std::min(words.back().size() + 1, text.size()));
    }
    return words;
}

// A temporary error: calls wait within their deadlines.
Error temporary_error(const std::string& message) {
    return make_error(ErrorCode::unavailable, message, "MASTERDOWN");
}

}  // namespace

SentinelAnswer SentinelAnswer::failed(Error error) {
    SentinelAnswer answer;
    answer.kind = Said::failed;
    answer.why = std::move(error);
    return answer;
}

SentinelAnswer read_answer(const Reply& address, const Reply& state, const std::string& context) {
    SentinelAnswer answer;
    answer.kind = Said::no_service;
    for (const Reply* reply : {&address, &state}) {
        const auto* const error = std::get_if<ReplyError>(&reply->value);
        if (error == nullptr) continue;
        if (error->message.find("No such master") != std::string::npos) {
            return answer;
        }
        if (error->message.starts_with("ERR unknown command")) {
            return SentinelAnswer::failed(make_error(
                ErrorCode::config, context + ": this server is no Sentinel: for one server the URL "
                                             "begins with redis://, for "
                                             "the nodes of a cluster with redis+cluster://"));
        }
        return SentinelAnswer::failed(to_error(*error, context));
    }
    if (std::holds_alternative<std::monostate>(address.value)) return answer;
    const auto* const parts = std::get_if<ReplyArray>(&address.value);
    const auto text = [&](std::size_t i) {
        const auto* const word = parts == nullptr || parts->size() != 2
                                     ? nullptr
                                     : std::get_if<std::string>(&(*parts)[i].value);
        return word == nullptr ? std::string_view{} : std::string_view{*word};
    };
    const auto primary = to_endpoint(text(0), text(1));
    const std::string epoch = hello_field(state, "config-epoch");
    answer.kind = Said::primary;
    const auto [end, error] =
        std::from_chars(epoch.data(), epoch.data() + epoch.size(), answer.epoch);
    if (!primary || error != std::errc{} || end != epoch.data() + epoch.size()) {
        return SentinelAnswer::failed(
            make_error(ErrorCode::reply, context + " answers without sense"));
    }
    answer.primary = *primary;
    const bool begun =
        hello_field(state, "flags").find("failover_in_progress") != std::string::npos;
    answer.replaces_it =
        begun && to_endpoint(hello_field(state, "ip"), hello_field(state, "port")) == primary;
    return answer;
}

Error being_replaced(const Options& options, const Endpoint& primary) {
    return temporary_error(options.address() + ": the Sentinels are replacing " + primary.str());
}

Result<Primary> choose_primary(const Options& options, std::span<const SentinelAnswer> answers,
                               std::uint64_t known_epoch) {
    const std::size_t majority = answers.size() / 2 + 1;
    const auto of_kind = [&](Said kind) {
        return static_cast<std::size_t>(
            std::count_if(answers.begin(), answers.end(),
                          [&](const SentinelAnswer& answer) { return answer.kind == kind; }));
    };
    const std::size_t said = of_kind(Said::primary);
    const std::string who = options.address() + ": ";
    const std::string all = std::to_string(answers.size());
    if (of_kind(Said::no_service) + majority > answers.size()) {
        return make_error(ErrorCode::config,
                          who +
                              "the Sentinels watch no service of this name: SENTINEL MASTERS "
                              "lists those that they do, and the URL names it behind the hosts, "
                              "redis+sentinel://host:26379/NAME");
    }
    if (said < majority) {
        std::string reasons;
        const Error* refused = nullptr;
        std::size_t late = of_kind(Said::none);
        std::size_t no_sentinels = 0;
        for (const SentinelAnswer& answer : answers) {
            if (!answer.why) continue;
            if (answer.why->code == ErrorCode::deadline) ++late;
            reasons += (reasons.empty() ? ": " : "; ") + answer.why->message;
            const ErrorCode code = answer.why->code;
            if (code == ErrorCode::config) ++no_sentinels;
            if (code == ErrorCode::auth || code == ErrorCode::permission_denied) {
                refused = &*answer.why;
            }
        }
        if (refused != nullptr) {
            return make_error(refused->code, who +
                                                 "a Sentinel refuses the login, which is its own "
                                                 "(sentinel_credentials): " +
                                                 refused->message);
        }
        if (no_sentinels + majority > answers.size()) {
            return make_error(ErrorCode::config, who + "no majority of the Sentinels" + reasons);
        }
        if (of_kind(Said::none) > 0) {
            reasons += (reasons.empty() ? ": " : "; ") + std::to_string(of_kind(Said::none)) +
                       " said nothing within connect_timeout";
        }
        if (said + of_kind(Said::no_service) == 0) {
            const std::string message = who + "none of the " + all + " Sentinels answers" + reasons;
            // A Sentinel that is late may answer the next time.
            return late > 0 ? temporary_error(message)
                            : make_error(ErrorCode::unavailable, message);
        }
        return temporary_error(who + "no majority of the Sentinels: " + std::to_string(said) +
                               " of " + all + " answer" + reasons);
    }
    const SentinelAnswer* best = nullptr;
    for (const SentinelAnswer& answer : answers) {
        if (answer.kind != Said::primary) continue;
        if (best == nullptr || answer.epoch > best->epoch) best = &answer;
    }
    bool unanimous = said == answers.size();
    for (const SentinelAnswer& answer : answers) {
        if (answer.kind != Said::primary) continue;
        const bool same = answer.primary == best->primary;
        unanimous &= same && answer.epoch == best->epoch;
        if (answer.epoch == best->epoch && !same) {
            return temporary_error(who + "the Sentinels disagree: " + best->primary.str() +
                                   " and " + answer.primary.str());
        }
        if (same && answer.replaces_it) {
            return being_replaced(options, best->primary);
        }
    }
    if (best->epoch < known_epoch && !unanimous) {
        return temporary_error(who + "the Sentinels that answer do not know of the last failover");
    }
    return Primary{best->primary, best->epoch};
}

std::optional<SentinelEvent> read_event(std::string_view channel, std::string_view text,
                                        std::string_view service) {
    const std::vector<std::string_view> words = words_of(text);
    if (channel == kSwitched && words.size() == 5 && words[0] == service) {
        const auto old = to_endpoint(words[1], words[2]);
        const auto now = to_endpoint(words[3], words[4]);
        if (old && now) return SentinelEvent{*old, *now};
    } else if (channel == kElected && words.size() == 4 && words[0] == "master" &&
               words[1] == service) {
        const auto old = to_endpoint(words[2], words[3]);
        if (old) return SentinelEvent{*old, {}};
    }
    return {};
}

}  // namespace hotcount::redis
