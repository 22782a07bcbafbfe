// The pause between two attempts of one call: random from 0 to a bound that doubles ("full jitter"),
// so that callers that failed together do not retry together.
#pragma once

#include <hotcount/clock.hpp>

namespace hotcount::sql {

struct BackoffRange {
    Duration first;  ///< The bound of the first pause.
    int doublings;   ///< How often it doubles.
};

/// For conflicts that end with a transaction, such as deadlocks. Up to 26 ms.
inline constexpr BackoffRange kLockBackoff{std::chrono::microseconds{100}, 8};
/// For a server that starts, fails over or has no room for a session. Up to 0.5 s; each attempt opens
/// a connection.
inline constexpr BackoffRange kServerBackoff{std::chrono::milliseconds{4}, 7};

/// The pause before attempt number `attempt` + 1, from 1.
Duration drawn_pause(BackoffRange range, int attempt);
/// Sleeps before attempt number `attempt` + 1, from 1. False, at once, if the deadline is nearer
/// than the pause; false if it has passed or the thread was interrupted.
bool pause_before_retry(BackoffRange range, int attempt, Deadline deadline);

}  // namespace hotcount::sql
