// The command line: what it may say, and what it means.
#pragma once

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

}  // namespace hotcount::loadtest
