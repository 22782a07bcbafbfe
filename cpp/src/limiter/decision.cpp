#include <hotcount/detail/limiter/decision.hpp>

namespace hotcount {
namespace {

std::string whole_seconds(Duration duration) {
    return std::to_string(std::chrono::ceil<std::chrono::seconds>(duration).count());
}

}  // namespace

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
    }
    return "";
}

std::vector<std::pair<std::string, std::string>> headers(const Decision& decision,
                                                         HeaderStyle style, std::string_view policy,
                                                         Duration period) {
    const std::string limit = std::to_string(decision.limit);
    const std::string remaining = std::to_string(decision.remaining);
    const std::string reset = whole_seconds(decision.reset_after);
    std::vector<std::pair<std::string, std::string>> fields;
    if (style == HeaderStyle::ietf) {
        const std::string name = "\"" + std::string{policy} + "\"";
        fields.emplace_back("RateLimit-Policy",
                            name + ";q=" + limit + ";w=" + whole_seconds(period));
        fields.emplace_back("RateLimit", name + ";r=" + remaining + ";t=" + reset);
    } else {
        fields.emplace_back("X-RateLimit-Limit", limit);
        fields.emplace_back("X-RateLimit-Remaining", remaining);
        fields.emplace_back("X-RateLimit-Reset", reset);
    }
    if (!decision.allowed && decision.retry_after) {
        fields.emplace_back("Retry-After", whole_seconds(*decision.retry_after));
    }
    return fields;
}

}  // namespace hotcount
