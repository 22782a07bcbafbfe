// Rounds of a worker until it is told to stop; one that failed because a server is away is tried again.
#pragma once

#include <functional>
#include <hotcount/detail/votes/sync_worker.hpp>

namespace hotcount {

inline bool is_worth_another_round(ErrorCode code) {
    return code == ErrorCode::unavailable || code == ErrorCode::deadline ||
           code == ErrorCode::outcome_unknown || code == ErrorCode::capacity ||
           code == ErrorCode::reply || code == ErrorCode::database || code == ErrorCode::integrity;
}

inline Result<void> run_rounds(SyncWorker& worker, Duration interval,
                               const std::function<bool(Duration)>& stop,
                               Timeout round_timeout = {}) {
    while (!stop(Duration{0})) {
        const auto round = worker.run_once(round_timeout);
        if (!round && !is_worth_another_round(round.error().code)) return round.error();
        if (stop(interval)) break;
    }
    return {};
}

/// How long a round may take if its caller does not say.
inline constexpr Duration kRoundTimeout{std::chrono::seconds{60}};

}  // namespace hotcount
