// The rules about names: which key stands beside which, and which keys a pattern means.
#pragma once

#include <hotcount/result.hpp>
#include <string>
#include <string_view>

namespace hotcount::zset {

/// The name of the key that holds a set's versions, in the set's slot of a cluster: see key_beside().
Result<std::string> companion_key(std::string_view key);

/// The name of the key that says a set has had versions, beside its companion in the same slot.
std::string marker_key(std::string_view companion);

Result<void> check_member(std::string_view member);  ///< 1 to 1000 bytes.
Result<void> check_score(double score);              ///< Not NaN.

/// The names of the set that is being built and of its hash, beside the companion in the same slot.
std::string build_key(std::string_view companion);
std::string build_hash_key(std::string_view companion);

/// The pattern that matches exactly `text`.
std::string escape_pattern(std::string_view text);

/// As Redis matches: * any bytes, ? one, [abc] [a-c] [^a] one of, \ takes the next as it is.
bool matches(std::string_view pattern, std::string_view text);

}  // namespace hotcount::zset
