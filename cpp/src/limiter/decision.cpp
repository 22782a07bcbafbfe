// What limiters answer: outcomes of several rates as one, decisions, and their headers.
#include <algorithm>

#include "backends.hpp"

namespace hotcount {
namespace {

std::string whole_seconds(Duration duration) {
    return std::to_string(std::chrono::ceil<std::chrono::seconds>(duration).count());
}

}  // namespace

bool says_more(const Outcome& a, const Outcome& b) {
    if (a.allowed != b.allowed) return !a.allowed;
    if (a.allowed) return a.remaining < b.remaining;
    if (!a.retry_after_us || !b.retry_after_us) return !a.retry_after_us && b.retry_after_us;
    return *a.retry_after_us > *b.retry_after_us;
}

Outcome merge(std::span<const Outcome> of_rates) {
    Outcome merged = of_rates.front();
    for (std::size_t i = 1; i < of_rates.size(); ++i) {
        const Outcome& one = of_rates[i];
        const std::int64_t remaining = std::min(merged.remaining, one.remaining);
        const std::int64_t longest = std::max(merged.forget_after_us(), one.reset_after_us);
        if (says_more(one, merged)) {
            merged = one;
            merged.rate = static_cast<std::uint8_t>(i);
        }
        merged.remaining = remaining;
        merged.longest_reset_us = longest;
    }
    merged.violated = 0;
    for (std::size_t i = 0; i < of_rates.size(); ++i) {
        if (!of_rates[i].allowed) merged.violated |= static_cast<std::uint8_t>(1U << i);
    }
    return merged;
}

Decision to_decision(const Outcome& outcome, std::span<const Rate> rates, bool shadow) {
    Decision decision{};
    fill(decision, outcome, rates, shadow);
    return decision;
}

void fill(Decision& decision, const Outcome& outcome, std::span<const Rate> rates, bool shadow) {
    using std::chrono::microseconds;
    decision.allowed = outcome.allowed;
    decision.limit = rates[outcome.rate].burst;
    decision.remaining = outcome.remaining;
    decision.retry_after.reset();
    decision.reset_after = microseconds{outcome.reset_after_us};
    decision.reason = outcome.untracked ? Reason::untracked : Reason::allowed;
    decision.rate = outcome.rate;
    decision.violated = outcome.violated;
    // An algorithm of one rate does not say which.
    if (!outcome.allowed && rates.size() == 1) decision.violated = 1;
    if (outcome.blocked || outcome.instead == Reason::closed) decision.violated = 0;
    if (outcome.retry_after_us) decision.retry_after = microseconds{*outcome.retry_after_us};
    if (!outcome.allowed) {
        decision.reason = outcome.blocked          ? Reason::blocked
                          : outcome.retry_after_us ? Reason::limited
                                                   : Reason::cost_above_limit;
        if (shadow) {
            decision.allowed = true;
            decision.reason = Reason::shadow;
        }
    }
    // No limit has refused what `closed` refuses, and nobody counts what is untracked.
    const bool says_more = decision.reason == Reason::shadow || outcome.untracked;
    if (outcome.instead == Reason::closed || (outcome.instead != Reason::allowed && !says_more)) {
        decision.reason = outcome.instead;
    }
}

std::string_view to_string(Reason reason) {
    switch (reason) {
        case Reason::allowed:
            return "allowed";
        case Reason::limited:
            return "limited";
        case Reason::cost_above_limit:
            return "cost_above_limit";
        case Reason::untracked:
            return "untracked";
        case Reason::blocked:
            return "blocked";
        case Reason::shadow:
            return "shadow";
        case Reason::open:
            return "open";
        case Reason::closed:
            return "closed";
        case Reason::local:
            return "local";
    }
    return "";
}

std::vector<std::pair<std::string, std::string>> headers(const Decision& decision,
                                                         HeaderStyle style, std::string_view policy,
                                                         const Rate& rate) {
    const std::string limit = std::to_string(decision.limit);
    const std::string remaining = std::to_string(decision.remaining);
    const std::string reset = whole_seconds(decision.reset_after);
    const bool waits = !decision.allowed && decision.retry_after;
    std::vector<std::pair<std::string, std::string>> fields;
    if (style == HeaderStyle::ietf) {
        const std::string name = "\"" + std::string{policy} + "\"";
        std::string quota =
            name + ";q=" + std::to_string(rate.limit) + ";w=" + whole_seconds(rate.period);
        // Another number at once than in the long run: a parameter of ours, which the draft wants to
        // begin with its maker's name.
        if (decision.limit != rate.limit) quota += ";hotcount-burst=" + limit;
        fields.emplace_back("RateLimit-Policy", std::move(quota));
        // For so long no more than what remains can be used; Retry-After must not name an earlier
        // moment.
        fields.emplace_back("RateLimit",
                            name + ";r=" + remaining +
                                ";t=" + (waits ? whole_seconds(*decision.retry_after) : reset));
    } else {
        fields.emplace_back("X-RateLimit-Limit", limit);
        fields.emplace_back("X-RateLimit-Remaining", remaining);
        fields.emplace_back("X-RateLimit-Reset", reset);
    }
    if (waits) {
        fields.emplace_back("Retry-After", whole_seconds(*decision.retry_after));
    }
    return fields;
}

}  // namespace hotcount
