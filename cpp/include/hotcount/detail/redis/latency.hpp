// How long the replies of a client took, as the histogram of a metrics system has it.
#pragma once

#include <cstdint>
#include <hotcount/redis.hpp>
#include <utility>
#include <vector>

namespace hotcount::redis {

struct Latency {
    /// Bounds in seconds, and how many replies took at most so long, up to 7 % above the bound.
    std::vector<std::pair<double, std::uint64_t>> buckets;
    double sum_s;         ///< Of all replies.
    std::uint64_t count;  ///< Replies: a combined command has one for several calls.
};

/// Since the client was made in this process, from a command's encoding to its reply.
Latency latency_of(const Client& client);

}  // namespace hotcount::redis
