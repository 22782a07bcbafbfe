// The hash of tables whose keys users choose: one that nobody outside of this process can foresee.
//
// With a hash that is the same everywhere, such as the standard library's, who chooses 16,000 keys
// that share a bucket makes every call on them walk past all the others. Safe from many threads.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace hotcount {

struct HashKey {
    std::uint64_t k0;
    std::uint64_t k1;
};

/// SipHash-1-3, the hash that Python and Rust use for this: about 10 ns for a key of 20 bytes.
std::uint64_t siphash13(HashKey key, std::string_view bytes);

/// siphash13 under a key that is drawn when the process asks first; a forked child keeps it.
std::uint64_t keyed_hash(std::string_view bytes);

/// keyed_hash for the standard library's tables, which can then be searched by std::string_view too
/// where they compare with std::equal_to<>.
struct KeyedHash {
    using is_transparent = void;
    // Not noexcept: the standard library's tables then keep each element's hash beside it.
    std::size_t operator()(std::string_view bytes) const { return keyed_hash(bytes); }
};

}  // namespace hotcount
