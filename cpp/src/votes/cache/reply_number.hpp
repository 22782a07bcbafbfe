// Numbers as the scripts of votes/ answer them: integers, or the text of a hash's field.
#pragma once

#include <charconv>
#include <cstdint>
#include <hotcount/detail/redis/reply.hpp>
#include <optional>
#include <string>
#include <variant>

namespace hotcount {

inline std::optional<std::int64_t> to_number(const redis::Reply& reply) {
    if (const auto* number = std::get_if<std::int64_t>(&reply.value)) return *number;
    const auto* const text = std::get_if<std::string>(&reply.value);
    if (text == nullptr) return std::nullopt;
    std::int64_t number = 0;
    const char* const end = text->data() + text->size();
    const auto [stop, error] = std::from_chars(text->data(), end, number);
    if (error != std::errc{} || stop != end) return std::nullopt;
    return number;
}

}  // namespace hotcount
