// Decision: what a limiter answers. A denial is an answer, not an error.
#pragma once

#include <cstdint>
#include <hotcount/clock.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hotcount {

enum class Reason : std::uint8_t {
    allowed,           ///< Nothing stands against it.
    limited,           ///< The limit is reached; later it may be admitted.
    cost_above_limit,  ///< Costs more than an idle key admits: never admissible.
    untracked,         ///< Admitted without being counted: the memory store is full (`when_full`).
};

std::string_view to_string(Reason reason);

struct Decision {
    bool allowed;
    std::int64_t limit;      ///< What an idle key admits at once.
    std::int64_t remaining;  ///< What is left after this call.
    /// Until the same hit would be admitted if nobody else came: 0 where it was, none where never.
    std::optional<Duration> retry_after;
    Duration reset_after;  ///< Until the key is as if it had never been hit.
    Reason reason;
};

enum class HeaderStyle : std::uint8_t {
    ietf,    ///< RateLimit-Policy and RateLimit, as the IETF draft has them.
    legacy,  ///< X-RateLimit-Limit, -Remaining and -Reset, the last in seconds from now.
};

/// The HTTP headers that tell a client; a denial that may pass later adds Retry-After. Times are
/// whole seconds, rounded up, so that a client which waits for them is admitted. `policy` is
/// printable ASCII without quotes.
std::vector<std::pair<std::string, std::string>> headers(const Decision& decision,
                                                         HeaderStyle style, std::string_view policy,
                                                         Duration period);

}  // namespace hotcount
