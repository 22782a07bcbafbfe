// One coordinator, served by a process of its own: messages.hpp has the order of what is said.
#pragma once

#include <atomic>
#include <cstdio>
#include <string>

#include "link.hpp"

namespace hotcount::loadtest {

/// Returns when it hung up, or was refused. `busy` is a file that the one load of an agent locks.
/// `from` is the other side's address, for messages to `log`. On `interrupt` the load ends early.
void serve_coordinator(Link& link, const std::string& from, const std::string& token, int busy,
                       const std::atomic<bool>& interrupt, std::FILE* log);

}  // namespace hotcount::loadtest
