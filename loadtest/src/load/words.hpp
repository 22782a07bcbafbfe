// The words of enumerations: one table for what is printed, written to JSON and read from options.
#pragma once

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <cstddef>
#include <hotcount/result.hpp>
#include <string_view>
#include <vector>

namespace hotcount::loadtest {

inline std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    for (;;) {
        const std::size_t at = text.find(separator);
        parts.push_back(text.substr(0, at));
        if (at == std::string_view::npos) return parts;
        text.remove_prefix(at + 1);
    }
}

/// The enumerator's word; `words` are in the order of the enumerators.
template <class Enum, std::size_t size>
constexpr std::string_view word_of(Enum value, const std::string_view (&words)[size]) {
    const auto index = static_cast<std::size_t>(value);
    return index < size ? words[index] : "?";
}

/// "'x' is no arrival; it takes poisson, uniform".
inline Error refuse_word(std::string_view what, std::string_view text, std::string_view takes) {
    return make_error(ErrorCode::config,
                      fmt::format("'{}' is no {}; it takes {}", text, what, takes));
}

/// The one of `values` whose to_string() is the text. An error says what else the text may be.
template <class Enum, std::size_t size>
Result<Enum> parse_word(std::string_view what, std::string_view text, const Enum (&values)[size]) {
    std::string_view words[size];
    for (std::size_t i = 0; i < size; ++i) {
        words[i] = to_string(values[i]);
        if (words[i] == text) return values[i];
    }
    return refuse_word(what, text, fmt::format("{}", fmt::join(words, ", ")));
}

}  // namespace hotcount::loadtest
