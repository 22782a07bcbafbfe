// The kind of access for which a readiness check asks.
#pragma once

#include <cstdint>

namespace hotcount {

enum class Access : std::uint8_t {
    reads,
    writes,  ///< Reads and writes.
};

}  // namespace hotcount
