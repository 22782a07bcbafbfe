#include "backoff.hpp"

#include <algorithm>
#include <hotcount/detail/base/interrupt.hpp>
#include <hotcount/detail/base/random.hpp>

namespace hotcount::sql {

Duration drawn_pause(BackoffRange range, int attempt) {
    const Duration longest = range.first * (1 << std::min(attempt - 1, range.doublings));
    return Duration{static_cast<Duration::rep>(
        thread_random().below(static_cast<std::uint64_t>(longest.count())))};
}

bool pause_before_retry(BackoffRange range, int attempt, Deadline deadline) {
    if (deadline.passed()) return false;
    const Duration pause = drawn_pause(range, attempt);
    if (pause >= deadline.remaining()) return false;
    sleep_or_interrupt(pause);
    return !deadline.passed();
}

}  // namespace hotcount::sql
