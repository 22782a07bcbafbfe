#include "agent_options.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "agents/link.hpp"
#include "load/settings.hpp"

namespace hotcount::loadtest {

Result<std::string> parse_listen(std::string_view text) {
    HOTCOUNT_TRY_ASSIGN(const Address address, parse_address(text));
    return format_address(address);
}

Result<std::string> read_token_file(std::string_view file) {
    return look_up_url("file:" + std::string{file});
}

Result<std::vector<std::string>> parse_agents(std::string_view text) {
    std::vector<std::string> addresses;
    for (;;) {
        const std::size_t comma = text.find(',');
        HOTCOUNT_TRY_ASSIGN(std::string address, parse_listen(text.substr(0, comma)));
        if (std::find(addresses.begin(), addresses.end(), address) != addresses.end()) {
            return make_error(
                ErrorCode::config,
                fmt::format("{} is there twice: an agent runs one load at a time", address));
        }
        addresses.push_back(std::move(address));
        if (comma == std::string_view::npos) break;
        text.remove_prefix(comma + 1);
    }
    if (addresses.size() <= kMostAgents) return addresses;
    return make_error(ErrorCode::config, fmt::format("it takes {} agents at most", kMostAgents));
}

}  // namespace hotcount::loadtest
