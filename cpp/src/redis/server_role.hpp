// Questions to a server about itself: fields of INFO and HELLO, its eviction policy, and whether it
// can be a store.
#pragma once

#include <hotcount/detail/redis/channel.hpp>
#include <hotcount/detail/redis/options.hpp>
#include <hotcount/redis.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "dialer.hpp"

namespace hotcount::redis {

/// The value behind "name:" in the reply to INFO or CLUSTER INFO.
std::optional<std::string> info_field(const Reply& info, std::string_view name);
/// The value of a name in the reply to HELLO; empty if the name is missing or its value is not a
/// string.
std::string hello_field(const Reply& greeted, std::string_view name);

/// Client::ping() over one of the client's channels, whose connections the dialer opens.
void look_at_server(const Options& options, std::shared_ptr<const Dialer> dialer, Channel& channel,
                    Deadline deadline, Completion<void> done, const Cancelled* cancelled);

/// The server's maxmemory-policy, in one round trip; empty if the reply lacks it. In a cluster,
/// with a round trip to each primary, the policy of a primary that evicts any key, if such a
/// primary exists.
std::string eviction_policy(Client& client, Timeout timeout);

}  // namespace hotcount::redis
