// The program, but for main(): so that tests can run it in their own process.
#pragma once

#include <atomic>
#include <cstdio>

#include "load/settings.hpp"

namespace hotcount::loadtest {

/// Does what the settings ask for: results to `out`, progress and errors to `log`. Returns the exit
/// code: 0 passed, 1 a contract was broken, 2 bad usage, 3 inconclusive.
int run_program(const Settings& settings, const std::atomic<bool>& interrupt, std::FILE* out,
                std::FILE* log);

}  // namespace hotcount::loadtest
