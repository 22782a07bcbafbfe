// The key codec: how a caller's key becomes the bytes that stand in a store.
//
//   full key   store prefix + concept prefix + ":" + key      e.g. "app:" "count" ":" "home"
//   plain key  as it is; a leading "%" stands as %25
//   tuple key  "%:" and the parts joined by ":", "%" and ":" inside a part escaped as %25 and %3A,
//              so that ("a:b", "c"), ("a", "b:c") and the plain key "a:b:c" differ
#pragma once

#include <hotcount/result.hpp>
#include <span>
#include <string>
#include <string_view>

namespace hotcount {

/// store_prefix + prefix + ":" + key, as written down in ARCHITECTURE.md.
std::string full_key(std::string_view store_prefix, std::string_view prefix, std::string_view key);

/// The text with "%" and ":" escaped, for where ":" separates.
std::string escape_part(std::string_view part);

/// Encodes a tuple of parts as one key; no two different tuples give the same key, and no plain key
/// that went through encode_plain does. At least one part; the result is subject to check_key.
Result<std::string> encode_parts(std::span<const std::string_view> parts);

/// A plain key where tuples are keys too: the same bytes, but for a "%" at its head.
std::string encode_plain(std::string_view key);
/// What encode_plain was given; a tuple's encoding stays as it is.
std::string decode_plain(std::string_view encoded);

/// The name of a key that stands beside another, in its slot of a cluster: {KEY}:what where the key
/// has no braces, KEY:whatt where it has a hash tag, which is kept. A config error for any other key,
/// such as "a}b" or "{}a", whose slot no second name can be given. No two keys share a name.
Result<std::string> key_beside(std::string_view key, std::string_view what);

/// %XX decoding as in URLs; an incomplete or non-hex escape is a config error naming `what`.
Result<std::string> percent_decode(std::string_view text, std::string_view what);

/// The text as it may stand in a message: printable ASCII, the rest escaped, at most 80 bytes.
std::string printable(std::string_view text);

}  // namespace hotcount
