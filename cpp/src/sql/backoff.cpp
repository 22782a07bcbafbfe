#include "backoff.hpp"

#include <algorithm>
#include <hotcount/base/interrupt.hpp>
#include <hotcount/base/random.hpp>

namespace hotcount::sql {

bool pause_before_retry(BackoffRange range, int attempt, Deadline deadline) {
    if (deadline.passed()) return false;
    const Duration longest = range.first * (1 << std::min(attempt - 1, range.doublings));
    const Duration pause{static_cast<Duration::rep>(
        thread_random().below(static_cast<std::uint64_t>(longest.count())))};
    if (pause >= deadline.remaining()) return false;
    sleep_or_interrupt(pause);
    return !deadline.passed();
}

}  // namespace hotcount::sql
