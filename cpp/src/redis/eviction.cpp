#include "eviction.hpp"

namespace hotcount::redis {

std::string eviction_policy(Client& client, Timeout timeout) {
    const std::string_view command[] = {"INFO", "memory"};
    const auto reply = client.execute(command, timeout);
    if (!reply) return {};
    const auto* const text = std::get_if<std::string>(&reply->value);
    constexpr std::string_view kName = "maxmemory_policy:";
    const std::size_t at = text == nullptr ? std::string::npos : text->find(kName);
    if (at == std::string::npos) return {};
    const std::size_t begin = at + kName.size();
    return text->substr(begin, text->find_first_of("\r\n", begin) - begin);
}

}  // namespace hotcount::redis
