// Command lines that a test has accepted or refused.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <variant>
#include <vector>

#include "cli/cli.hpp"

namespace hotcount::loadtest {

inline Settings accept(const std::vector<std::string>& arguments) {
    const auto parsed = parse_command_line(arguments);
    if (const auto* message = std::get_if<ExitMessage>(&parsed)) {
        ADD_FAILURE() << message->text;
        return {};
    }
    return std::get<Settings>(parsed);
}

inline std::string refuse(const std::vector<std::string>& arguments) {
    const auto parsed = parse_command_line(arguments);
    const auto* message = std::get_if<ExitMessage>(&parsed);
    if (message == nullptr) {
        ADD_FAILURE() << "accepted";
        return {};
    }
    EXPECT_EQ(message->code, 2);
    return message->text;
}

}  // namespace hotcount::loadtest
