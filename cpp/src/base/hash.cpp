#include <bit>
#include <cstring>
#include <hotcount/detail/base/hash.hpp>
#include <random>

namespace hotcount {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they stand");

struct State {
    std::uint64_t a, b, c, d;

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
};

std::uint64_t random_word(std::random_device& device) {
    return (std::uint64_t{device()} << 32) | device();
}

const HashKey& process_key() {
    static const HashKey key = [] {
        std::random_device device;
        return HashKey{random_word(device), random_word(device)};
    }();
    return key;
}

}  // namespace

std::uint64_t siphash13(HashKey key, std::string_view bytes) {
    State state{key.k0 ^ 0x736f6d6570736575, key.k1 ^ 0x646f72616e646f6d,
                key.k0 ^ 0x6c7967656e657261, key.k1 ^ 0x7465646279746573};
    const char* at = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) {
        std::uint64_t word = 0;
        std::memcpy(&word, at, 8);
        state.take(word);
    }
    std::uint64_t last = static_cast<std::uint64_t>(bytes.size()) << 56;
    if (left > 0 && bytes.size() >= 8) {
        // Load the last eight bytes at once, and shift out those that were hashed already.
        std::uint64_t word = 0;
        std::memcpy(&word, at + left - 8, 8);
        last |= word >> (8 * (8 - left));
    } else {
        for (std::size_t i = 0; i < left; ++i) {
            last |= std::uint64_t{static_cast<unsigned char>(at[i])} << (8 * i);
        }
    }
    state.take(last);
    state.c ^= 0xff;
    for (int i = 0; i < 3; ++i) state.round();
    return state.a ^ state.b ^ state.c ^ state.d;
}

std::uint64_t keyed_hash(std::string_view bytes) { return siphash13(process_key(), bytes); }

}  // namespace hotcount
