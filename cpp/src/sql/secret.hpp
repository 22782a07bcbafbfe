// A server may say anything in its messages, the password that it was sent included.
#pragma once

#include <string>
#include <string_view>

namespace hotcount::sql {

/// A server's text as it may stand in an error's message: without the password, and not endless.
inline std::string without_secret(std::string text, std::string_view secret) {
    constexpr std::size_t kLongest = 1000;
    // A short one cannot be cut out without showing by the gaps what it is.
    constexpr std::size_t kShort = 4;
    if (!secret.empty() && text.find(secret) != std::string::npos) {
        if (secret.size() < kShort) return "(a text that is left out: the password is part of it)";
        constexpr std::string_view kMask = "***";
        for (auto at = text.find(secret); at != std::string::npos;
             at = text.find(secret, at + kMask.size())) {
            text.replace(at, secret.size(), kMask);
        }
    }
    if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
    return text;
}

}  // namespace hotcount::sql
