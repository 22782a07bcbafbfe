// Text for a person, into what may be gone: a closed pipe, a terminal that was hung up, a full disk.
// fmt::print throws there, and a measurement must not end because nobody listens.
#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <string>
#include <utility>

namespace hotcount::loadtest {

/// Whether all of it was taken; a buffered stream may still fail at its flush. Never throws but for
/// want of memory.
template <class... Args>
bool say(std::FILE* to, fmt::format_string<Args...> format, Args&&... args) {
    const std::string text = fmt::format(format, std::forward<Args>(args)...);
    return std::fwrite(text.data(), 1, text.size(), to) == text.size();
}

}  // namespace hotcount::loadtest
