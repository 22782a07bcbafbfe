#include "eviction.hpp"

#include "server_role.hpp"

namespace hotcount::redis {

std::string eviction_policy(Client& client, Timeout timeout) {
    const std::string_view command[] = {"INFO", "memory"};
    const auto reply = client.execute(command, timeout);
    return reply ? info_field(*reply, "maxmemory_policy").value_or("") : std::string{};
}

}  // namespace hotcount::redis
