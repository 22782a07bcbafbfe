#include "backend.hpp"

#include <cmath>
#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>

namespace hotcount::zset {
namespace {

// Matches one byte against the class that starts behind '['; moves the pattern behind its end.
bool matches_class(std::string_view& pattern, unsigned char byte) {
    const bool negated = !pattern.empty() && pattern.front() == '^';
    if (negated) pattern.remove_prefix(1);
    bool found = false;
    while (!pattern.empty() && pattern.front() != ']') {
        if (pattern.front() == '\\' && pattern.size() >= 2) pattern.remove_prefix(1);
        auto low = static_cast<unsigned char>(pattern.front());
        auto high = low;
        if (pattern.size() >= 3 && pattern[1] == '-') {
            high = static_cast<unsigned char>(pattern[2]);
            if (low > high) std::swap(low, high);
            pattern.remove_prefix(2);
        }
        pattern.remove_prefix(1);
        found = found || (low <= byte && byte <= high);
    }
    if (!pattern.empty()) pattern.remove_prefix(1);
    return found != negated;
}

// Matches one byte against the pattern's first element, which is no '*', and moves behind it.
bool matches_one(std::string_view& pattern, char byte) {
    char wanted = pattern.front();
    pattern.remove_prefix(1);
    if (wanted == '?') return true;
    if (wanted == '[') return matches_class(pattern, static_cast<unsigned char>(byte));
    if (wanted == '\\' && !pattern.empty()) {
        wanted = pattern.front();
        pattern.remove_prefix(1);
    }
    return wanted == byte;
}

}  // namespace

Result<std::string> companion_key(std::string_view key) { return key_beside(key, "versions.1"); }

std::string marker_key(std::string_view companion) { return std::string{companion} + ":used"; }

Result<void> check_member(std::string_view member) {
    if (member.empty()) return bad_option("member", "is empty; 1 to 1000 bytes");
    if (member.size() > kMaxKeyBytes) {
        return bad_option("member",
                          "has " + std::to_string(member.size()) + " bytes; it takes 1 to 1000");
    }
    return {};
}

Result<void> check_score(double score) {
    if (!std::isnan(score)) return {};
    return bad_option("score", "is NaN; it takes numbers that have an order");
}

std::string build_key(std::string_view companion) { return std::string{companion} + ":build"; }

std::string build_hash_key(std::string_view companion) { return std::string{companion} + ":next"; }

std::string escape_pattern(std::string_view text) {
    std::string pattern;
    for (const char byte : text) {
        if (byte == '*' || byte == '?' || byte == '[' || byte == ']' || byte == '\\') {
            pattern += '\\';
        }
        pattern += byte;
    }
    return pattern;
}

bool matches(std::string_view pattern, std::string_view text) {
    // Only the last '*' is ever gone back to: linear in pattern times text, whatever the pattern.
    std::string_view after_star;
    std::string_view retry_text;
    bool starred = false;
    while (true) {
        if (!pattern.empty() && pattern.front() == '*') {
            pattern.remove_prefix(1);
            after_star = pattern;
            retry_text = text;
            starred = true;
            continue;
        }
        if (text.empty()) return pattern.empty();
        std::string_view rest = pattern;
        if (!pattern.empty() && matches_one(rest, text.front())) {
            pattern = rest;
            text.remove_prefix(1);
            continue;
        }
        if (!starred) return false;
        retry_text.remove_prefix(1);
        pattern = after_star;
        text = retry_text;
    }
}

}  // namespace hotcount::zset
