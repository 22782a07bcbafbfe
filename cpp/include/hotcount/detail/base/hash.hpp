// The hash for tables whose keys users choose: nobody outside of this process can predict it.
//
// With a predictable hash, such as the standard library's, a user can choose 16,000 keys that share a
// bucket, and every call on one of them then walks past all the others. Thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace hotcount {

struct HashKey {
    std::uint64_t k0;
    std::uint64_t k1;
};

/// SipHash-1-3, the hash that Python and Rust use for this: about 10 ns for a key of 20 bytes.
std::uint64_t siphash13(HashKey key, std::string_view bytes);

/// siphash13 with a key that is drawn at the first call of the process; a forked child keeps it.
std::uint64_t keyed_hash(std::string_view bytes);

/// keyed_hash() of texts that begin alike, without hashing the beginning each time.
class KeyedHashAfter {
  public:
    explicit KeyedHashAfter(std::string beginning);

    const std::string& beginning() const { return beginning_; }
    /// keyed_hash(beginning() + rest).
    std::uint64_t operator()(std::string_view rest) const;

  private:
    std::string beginning_;
    std::uint64_t state_[4];  // After the whole words of the beginning.
};

/// keyed_hash for the standard library's tables. With std::equal_to<> they can be searched by
/// std::string_view, too.
struct KeyedHash {
    using is_transparent = void;
    // Not noexcept: that makes the standard library's tables store each element's hash.
    std::size_t operator()(std::string_view bytes) const { return keyed_hash(bytes); }
};

}  // namespace hotcount
