// The options of `agent`, and those of `run` for agents.
#pragma once

#include <hotcount/result.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace hotcount::loadtest {

/// host:port, as it was given.
Result<std::string> parse_listen(std::string_view text);
/// Several of them with commas, each once.
Result<std::vector<std::string>> parse_agents(std::string_view text);
/// The first line of the file.
Result<std::string> read_token_file(std::string_view file);

}  // namespace hotcount::loadtest
