// What a server says of itself: fields of INFO and HELLO, its eviction policy, and whether it can be a
// store.
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

/// The value behind "name:" in what INFO or CLUSTER INFO answers.
std::optional<std::string> info_field(const Reply& info, std::string_view name);
/// The value of a name in what HELLO answers; empty if there is none, or if it is no text.
std::string hello_field(const Reply& greeted, std::string_view name);

/// What Client::ping() does, over one of the client's channels, whose connections the dialer opens.
void look_at_server(const Options& options, std::shared_ptr<const Dialer> dialer, Channel& channel,
                    Deadline deadline, Completion<void> done, const Cancelled* cancelled);

/// The server's maxmemory-policy; empty if it does not say. One round trip. Of a cluster the one of a
/// primary that evicts any key, if there is one; a round trip to each primary.
std::string eviction_policy(Client& client, Timeout timeout);

}  // namespace hotcount::redis
