// The slots of a cluster: a key belongs to CRC16(key) mod 16384, or to that of its hash tag. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hotcount::redis {

inline constexpr std::size_t kSlots = 16384;

/// What is hashed of a key: the text between its first '{' and the first '}' behind that, if there is
/// any; else the whole key.
std::string_view hash_tag(std::string_view key);

std::uint16_t slot_of(std::string_view key);

}  // namespace hotcount::redis
