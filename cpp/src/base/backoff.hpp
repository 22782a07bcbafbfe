// The pauses between attempts. Each is random from 0 to a bound that doubles ("full jitter"), so
// that callers that failed together do not retry together.
#pragma once

#include <algorithm>
#include <hotcount/clock.hpp>
#include <hotcount/detail/base/random.hpp>

namespace hotcount {

struct Backoff {
    Duration first;  ///< The bound after the first failure; it doubles with each further one.
    Duration most;   ///< The largest bound.

    /// The pause after `failures` failures in a row; 0 after 0.
    Duration draw(unsigned failures) const {
        if (failures == 0) return Duration{0};
        const Duration bound = std::min(first * (1 << std::min(failures - 1, 20U)), most);
        return Duration{static_cast<Duration::rep>(
            thread_random().below(static_cast<std::uint64_t>(bound.count()) + 1))};
    }
};

}  // namespace hotcount
