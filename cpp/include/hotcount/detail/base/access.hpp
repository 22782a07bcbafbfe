// What a program wants of a server, for the question whether the server can do it now.
#pragma once

#include <cstdint>

namespace hotcount {

enum class Access : std::uint8_t {
    reads,
    writes,  ///< And reads.
};

}  // namespace hotcount
