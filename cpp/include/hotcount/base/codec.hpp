// The key codec: how a caller's key becomes the bytes that stand in a store.
//
//   full key   store prefix + concept prefix + ":" + key      e.g. "app:" "count" ":" "home"
//   tuple key  parts joined by ":", "%" and ":" inside a part escaped as %25 and %3A,
//              so that ("a:b", "c") and ("a", "b:c") differ
#pragma once

#include <hotcount/base/result.hpp>
#include <span>
#include <string>
#include <string_view>

namespace hotcount {

/// store_prefix + prefix + ":" + key, as written down in ARCHITECTURE.md.
std::string full_key(std::string_view store_prefix, std::string_view prefix, std::string_view key);

/// Encodes a tuple of parts as one key; no two different tuples give the same key.
/// At least one part; the result is subject to check_key.
Result<std::string> encode_parts(std::span<const std::string_view> parts);

/// %XX decoding as in URLs; an incomplete or non-hex escape is a config error naming `what`.
Result<std::string> percent_decode(std::string_view text, std::string_view what);

/// The text as it may stand in a message: printable ASCII, the rest escaped, at most 80 bytes.
std::string printable(std::string_view text);

}  // namespace hotcount
