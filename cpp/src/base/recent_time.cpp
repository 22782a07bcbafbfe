#include <hotcount/detail/base/recent_time.hpp>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace hotcount::detail {
namespace {

#if defined(__x86_64__)
bool counts_steadily() {
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __get_cpuid(0x80000007, &a, &b, &c, &d) != 0 && (d & (1U << 8)) != 0;
}
#else
bool counts_steadily() { return false; }
#endif

}  // namespace

// Before the first look: far from what a processor has counted.
constinit thread_local SeenTime seen_time{std::uint64_t{1} << 63, {}};

SteadyTime look_at_clock(std::uint64_t ticks) {
    static const bool kSteadily = counts_steadily();
    const SteadyTime time = std::chrono::steady_clock::now();
    if (kSteadily) seen_time = {ticks, time};
    return time;
}

}  // namespace hotcount::detail
