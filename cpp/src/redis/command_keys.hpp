// Where the keys of a command are, for a cluster, in which the keys say which node takes it.
#pragma once

#include <hotcount/result.hpp>
#include <span>
#include <string_view>
#include <vector>

namespace hotcount::redis {

/// The keys of a command that the table of commands has (commands.hpp). A config error for one that
/// names no key, or whose keys nobody knows: no node can be chosen for it.
Result<std::vector<std::string_view>> keys_of(std::span<const std::string_view> words);

}  // namespace hotcount::redis
