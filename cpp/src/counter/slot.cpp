#include <atomic>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/random.hpp>
#include <hotcount/detail/counter/slot.hpp>

namespace hotcount {

std::int64_t choose_slot(SlotChoice choice, std::int64_t slots) {
    const auto bound = static_cast<std::uint64_t>(slots);
    if (choice == SlotChoice::random) {
        return static_cast<std::int64_t>(thread_random().below(bound));
    }
    // Threads take places in turn, so that the first `slots` of them share none. A process begins
    // where it is drawn: counting from 0, all would write to the same few slots.
    static std::atomic<std::uint64_t> next_place{0};
    static ForkLocal<const std::uint64_t> start{
        [] { return std::make_unique<const std::uint64_t>(thread_random().below(1'000'000)); }};
    thread_local const std::uint64_t place = next_place.fetch_add(1, std::memory_order_relaxed);
    return static_cast<std::int64_t>((start.get() + place) % bound);
}

}  // namespace hotcount
