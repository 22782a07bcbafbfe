// Command lines that a test has accepted or refused.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <iterator>
#include <sstream>
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

/// Arguments with spaces between them, and what the refusal says.
struct Refused {
    std::string arguments;
    std::vector<std::string> says;
};

inline void expect_refused(const std::vector<Refused>& all) {
    for (const Refused& one : all) {
        std::istringstream words(one.arguments);
        const std::string said = refuse({std::istream_iterator<std::string>(words), {}});
        for (const std::string& part : one.says) {
            EXPECT_THAT(said, testing::HasSubstr(part)) << one.arguments;
        }
    }
}

}  // namespace hotcount::loadtest
