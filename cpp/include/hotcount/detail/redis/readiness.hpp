// Whether a server serves calls now: for probes.
#pragma once

#include <hotcount/detail/base/access.hpp>
#include <hotcount/redis.hpp>

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

}  // namespace hotcount::redis
