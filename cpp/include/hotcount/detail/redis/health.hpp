// Readiness and latency of a client's server, for probes and metrics.
#pragma once

#include <cstdint>
#include <hotcount/detail/base/access.hpp>
#include <hotcount/redis.hpp>
#include <utility>
#include <vector>

namespace hotcount::redis {

/// Succeeds if the server is ready for the access; otherwise the error gives the reason.
///   reads   Client::ping(). A read-only replica, a server whose disk fails (MISCONF) and a server
///           on which the user may not PING are ready too.
///   writes  Client::ping(), and then a write that changes nothing. The server refuses the write
///           if it is a replica (READONLY), is full and evicts nothing (OOM), has a failing disk
///           (MISCONF) or too few replicas (NOREPLICAS). A refusal for lack of rights is ignored.
Result<void> check_ready(Client& client, Access access, Timeout timeout = {});
/// check_ready() without waiting. The client must live until `done` is called.
void check_ready_async(Client& client, Access access, Completion<void> done,
                       const AsyncCall& call = {});

/// Reply times in the form of a Prometheus histogram.
struct Latency {
    /// Upper bounds in seconds, each with the number of replies that took at most that time.
    /// Replies up to 7 % above the bound may be counted too.
    std::vector<std::pair<double, std::uint64_t>> buckets;
    double sum_s;         ///< The sum of all reply times, in seconds.
    std::uint64_t count;  ///< Replies. A combined command has one reply for several calls.
};

/// Times from a command's encoding to its reply, since the client was made in this process.
Latency latency_of(const Client& client);

}  // namespace hotcount::redis
