// Which slot of a spread count a writer uses.
#pragma once

#include <cstdint>

namespace hotcount {

enum class SlotChoice : std::uint8_t {
    /// Each writer keeps its slot: neighbours stay apart while there are slots to spare. A writer is
    /// a thread, or a connection where several threads' writes travel on one.
    sticky,
    random,  ///< The seed's: a random slot for each add; writers collide even with slots to spare.
};

/// A slot in [0, slots) for the calling thread's next write.
std::int64_t choose_slot(SlotChoice choice, std::int64_t slots);

}  // namespace hotcount
