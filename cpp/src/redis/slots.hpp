// The slot of a key in a cluster: CRC16 of its hash tag or else of the whole key, mod 16384. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hotcount::redis {

inline constexpr std::size_t kSlots = 16384;

/// The part of a key that is hashed: the text between the first '{' and the next '}', if it is not
/// empty; otherwise the whole key.
std::string_view hash_tag(std::string_view key);
/// Whether the prefix has a '{' and no whole hash tag: the rest of a key would end the tag.
bool opens_hash_tag(std::string_view prefix);

std::uint16_t slot_of(std::string_view key);

}  // namespace hotcount::redis
