// The hash for tables whose keys users choose: it cannot be predicted outside of this process.
//
// With a predictable hash, such as the standard library's, a user can choose 16,000 keys that share a
// bucket, and every call on one of them then walks past all the others. Thread-safe.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace hotcount {

struct HashKey {
    std::uint64_t k0;
    std::uint64_t k1;
};

namespace detail {

static_assert(std::endian::native == std::endian::little, "words are read as they stand");

template <class Word>
std::uint64_t load(const char* at) {
    Word word = 0;
    std::memcpy(&word, at, sizeof(word));
    return word;
}

/// Up to seven bytes as a number. Loads may overlap: both put a shared byte in the same place.
inline std::uint64_t load_some(const char* at, std::size_t count) {
    if (count >= 4) {
        return load<std::uint32_t>(at) | (load<std::uint32_t>(at + count - 4) << (8 * (count - 4)));
    }
    if (count == 0) return 0;
    return load<std::uint8_t>(at) | (load<std::uint8_t>(at + count / 2) << (8 * (count / 2))) |
           (load<std::uint8_t>(at + count - 1) << (8 * (count - 1)));
}

/// SipHash-1-3 in the middle of a text. Inline, because a call costs as much as a round.
struct SipState {
    std::uint64_t a, b, c, d;

    explicit SipState(HashKey key)
        : a(key.k0 ^ 0x736f6d6570736575),
          b(key.k1 ^ 0x646f72616e646f6d),
          c(key.k0 ^ 0x6c7967656e657261),
          d(key.k1 ^ 0x7465646279746573) {}

    void round() {
        a += b;
        b = std::rotl(b, 13) ^ a;
        a = std::rotl(a, 32);
        c += d;
        d = std::rotl(d, 16) ^ c;
        a += d;
        d = std::rotl(d, 21) ^ a;
        c += b;
        b = std::rotl(b, 17) ^ c;
        c = std::rotl(c, 32);
    }
    void take(std::uint64_t word) {
        d ^= word;
        round();
        a ^= word;
    }
    /// `last`: the bytes after the last whole word, and in its top byte the number of all bytes.
    std::uint64_t finish(std::uint64_t last) {
        take(last);
        c ^= 0xff;
        for (int i = 0; i < 3; ++i) round();
        return a ^ b ^ c ^ d;
    }
};

}  // namespace detail

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
    std::uint64_t operator()(std::string_view rest) const {
        using detail::load_some;
        detail::SipState state = state_;
        std::uint64_t word = waiting_;
        const char* at = rest.data();
        std::size_t left = rest.size();
        const auto next = [&](std::uint64_t bytes) {
            state.take(word | (bytes << shift_));
            word = bytes >> 1 >> (63 - shift_);  // 0 if no bytes wait.
        };
        for (; left >= 8; left -= 8, at += 8) next(detail::load<std::uint64_t>(at));
        const std::uint64_t bytes = load_some(at, left);
        if (shift_ + 8 * left >= 64) {
            next(bytes);
        } else {
            word |= bytes << shift_;
        }
        return state.finish(word | (std::uint64_t{beginning_.size() + rest.size()} << 56));
    }

  private:
    std::string beginning_;
    detail::SipState state_;  // After the whole words of the beginning.
    std::uint64_t waiting_;   // The bytes after them, which are less than a word.
    unsigned shift_;          // The number of bits in waiting_.
};

/// keyed_hash for the standard library's tables. With std::equal_to<> they can be searched by
/// std::string_view, too.
struct KeyedHash {
    using is_transparent = void;
    // Not noexcept: that makes the standard library's tables store each element's hash.
    std::size_t operator()(std::string_view bytes) const { return keyed_hash(bytes); }
};

}  // namespace hotcount
