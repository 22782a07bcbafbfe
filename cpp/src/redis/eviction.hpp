// What a server does when its memory is full.
#pragma once

#include <hotcount/redis.hpp>
#include <string>

namespace hotcount::redis {

/// The server's maxmemory-policy; empty if it does not say. One round trip.
std::string eviction_policy(Client& client, Timeout timeout);

}  // namespace hotcount::redis
