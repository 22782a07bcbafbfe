// What probes and metrics ask of a client: whether its server serves calls now, and how long its
// replies took.
#pragma once

#include <cstdint>
#include <hotcount/detail/base/access.hpp>
#include <hotcount/redis.hpp>
#include <utility>
#include <vector>

namespace hotcount::redis {

/// The error says why not. Reads: as Client::ping(), and a read-only replica or a server whose disk
/// fails (MISCONF) serves them. Writes: also whether the server takes a write that changes nothing. It
/// does not (READONLY, OOM, MISCONF, NOREPLICAS) on a replica, when it is full and evicts nothing, when
/// its disk fails, and when it has too few replicas. A user who may not send that write is judged by
/// the rest.
Result<void> check_ready(Client& client, Access access, Timeout timeout = {});
/// The same without waiting. The client must live until `done` is called.
void check_ready_async(Client& client, Access access, Completion<void> done,
                       const AsyncCall& call = {});

/// As the histogram of a metrics system has it.
struct Latency {
    /// Bounds in seconds, and how many replies took at most so long, up to 7 % above the bound.
    std::vector<std::pair<double, std::uint64_t>> buckets;
    double sum_s;         ///< Of all replies.
    std::uint64_t count;  ///< Replies: a combined command has one for several calls.
};

/// Since the client was made in this process, from a command's encoding to its reply.
Latency latency_of(const Client& client);

}  // namespace hotcount::redis
