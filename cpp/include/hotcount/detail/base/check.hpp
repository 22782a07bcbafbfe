// Checks of arguments: each error names the argument and what is wrong with it. And the words for
// stored data of a format that earlier commits wrote: the error names the format, and the data stay
// as they are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <hotcount/result.hpp>
#include <optional>
#include <string_view>

namespace hotcount {

/// Longest key a store accepts, in bytes.
inline constexpr std::size_t kMaxKeyBytes = 1000;

/// Longest SQL identifier accepted: PostgreSQL's 63 bytes, the shortest of the dialects.
inline constexpr std::size_t kMaxIdentifierBytes = 63;

enum class KeyRule : std::uint8_t {
    any_bytes,  ///< Memory and Redis: any 1 to kMaxKeyBytes bytes.
    sql_text,   ///< SQL: the same without NUL, which PostgreSQL cannot store.
    utf8_text,  ///< PostgreSQL: the same as valid UTF-8.
};

Result<void> check_key(std::string_view key, KeyRule rule = KeyRule::any_bytes);
/// Whether the bytes are well-formed UTF-8: no overlong form, no surrogate, nothing above U+10FFFF.
bool is_utf8(std::string_view bytes);
/// A table or column name: 1 to 63 bytes, no NUL. Quotes and reserved words are fine, because
/// statements quote the name.
Result<void> check_identifier(std::string_view option, std::string_view name);

/// a + b, or nullopt if the sum leaves signed 64 bits.
inline std::optional<std::int64_t> checked_add(std::int64_t a, std::int64_t b) {
    std::int64_t sum = 0;
    if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
    return sum;
}

/// a - b, or nullopt if the difference leaves signed 64 bits.
inline std::optional<std::int64_t> checked_subtract(std::int64_t a, std::int64_t b) {
    std::int64_t difference = 0;
    if (__builtin_sub_overflow(a, b, &difference)) return std::nullopt;
    return difference;
}

/// The end of an error about a removed format.
inline constexpr std::string_view kLastReader =
    "hotcount at commit e815ecc6 is the last that reads it";

}  // namespace hotcount
