// The kind of access that a readiness check is for.
#pragma once

#include <cstdint>

namespace hotcount {

enum class Access : std::uint8_t {
    reads,
    writes,  ///< Reads and writes.
};

}  // namespace hotcount
