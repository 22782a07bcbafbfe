// The key codec: how a caller's key becomes the bytes that a store holds.
//
//   full key   store prefix + concept prefix + ":" + key      e.g. "app:" "count" ":" "home"
//   plain key  as it is, but a leading "%" becomes %25
//   tuple key  "%:" and the parts joined by ":". Inside a part "%" becomes %25 and ":" becomes %3A,
//              so that ("a:b", "c"), ("a", "b:c") and the plain key "a:b:c" differ
#pragma once

#include <hotcount/result.hpp>
#include <span>
#include <string>
#include <string_view>

namespace hotcount {

/// Returns store_prefix + prefix + ":" + key, or with an empty prefix store_prefix + key.
std::string full_key(std::string_view store_prefix, std::string_view prefix, std::string_view key);

/// The text with "%" and ":" escaped, as a part between ":" separators.
std::string escape_part(std::string_view part);

/// Encodes a tuple of at least one part as one key. Different tuples give different keys, and the
/// key differs from all results of encode_plain(). The result is subject to check_key().
Result<std::string> encode_parts(std::span<const std::string_view> parts);

/// A plain key for a store that also has tuple keys: the same bytes, but a leading "%" is escaped.
std::string encode_plain(std::string_view key);

/// A second key in the cluster slot of `key`: {KEY}:what for a key without braces, KEY:whatt for a
/// key with a hash tag, which stays the hash tag. A config error for any other key, such as "a}b"
/// or "{}a", because no second key can be in its slot. No two keys give the same result.
Result<std::string> key_beside(std::string_view key, std::string_view what);

/// %XX decoding as in URLs; an incomplete or non-hex escape is a config error naming `what`.
Result<std::string> percent_decode(std::string_view text, std::string_view what);

/// Text for a message: printable ASCII, else escaped; at most 80 bytes; a URL's password is ***.
std::string printable(std::string_view text);

}  // namespace hotcount
