// Data in a format that earlier commits wrote and this code does not read. It is refused with an error
// that names the format, and left as it is.
#pragma once

#include <string_view>

namespace hotcount {

inline constexpr std::string_view kLastReader =
    "hotcount at commit e815ecc6 is the last that reads it";

}  // namespace hotcount
