// Where the keys of a command are, for a cluster, in which the keys say which node takes it.
#pragma once

#include <hotcount/result.hpp>
#include <span>
#include <string_view>
#include <vector>

namespace hotcount::redis {

/// The keys of a command in the table of commands (commands.hpp). A config error if the command has
/// no key, or if the positions of its keys are unknown: then no node can be chosen for it.
Result<std::vector<std::string_view>> keys_of(std::span<const std::string_view> words);

}  // namespace hotcount::redis
