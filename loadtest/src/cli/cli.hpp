// The command line, what it means, and the program but for main(): so that tests can run it.
#pragma once

#include <atomic>
#include <cstdio>
#include <string>
#include <variant>
#include <vector>

#include "load/settings.hpp"

namespace hotcount::loadtest {

/// The program is to print this and end: help and version go to stdout with code 0, a usage error
/// to stderr with code 2.
struct ExitMessage {
    int code;
    std::string text;
};

/// `arguments` without the program's own name.
std::variant<Settings, ExitMessage> parse_command_line(const std::vector<std::string>& arguments);

/// Does what the settings ask for: results to `out`, progress and errors to `log`. Returns the exit
/// code: 0 passed, 1 a contract was broken, 2 bad usage, 3 inconclusive.
int run_program(const Settings& settings, const std::atomic<bool>& interrupt, std::FILE* out,
                std::FILE* log);

}  // namespace hotcount::loadtest
