#include <bit>
#include <cstring>
#include <hotcount/detail/base/hash.hpp>
#include <random>
#include <utility>

namespace hotcount {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they stand");

struct State {
    std::uint64_t a, b, c, d;

    explicit State(HashKey key)
        : a(key.k0 ^ 0x736f6d6570736575),
          b(key.k1 ^ 0x646f72616e646f6d),
          c(key.k0 ^ 0x6c7967656e657261),
          d(key.k1 ^ 0x7465646279746573) {}
    State(std::uint64_t first, std::uint64_t second, std::uint64_t third, std::uint64_t fourth)
        : a(first), b(second), c(third), d(fourth) {}

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
    // `last`: the bytes that make no whole word, and above them the number of all bytes.
    std::uint64_t finish(std::uint64_t last) {
        take(last);
        c ^= 0xff;
        for (int i = 0; i < 3; ++i) round();
        return a ^ b ^ c ^ d;
    }
};

template <class Word>
std::uint64_t load(const char* at) {
    Word word = 0;
    std::memcpy(&word, at, sizeof(word));
    return word;
}

// Up to seven bytes as a number. Loads may overlap: the same byte comes to the same place.
std::uint64_t load_some(const char* at, std::size_t count) {
    if (count >= 4) {
        return load<std::uint32_t>(at) | (load<std::uint32_t>(at + count - 4) << (8 * (count - 4)));
    }
    if (count == 0) return 0;
    return load<std::uint8_t>(at) | (load<std::uint8_t>(at + count / 2) << (8 * (count / 2))) |
           (load<std::uint8_t>(at + count - 1) << (8 * (count - 1)));
}

std::uint64_t size_byte(std::size_t size) { return std::uint64_t{size} << 56; }

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
    State state{key};
    const char* at = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) state.take(load<std::uint64_t>(at));
    return state.finish(load_some(at, left) | size_byte(bytes.size()));
}

std::uint64_t keyed_hash(std::string_view bytes) { return siphash13(process_key(), bytes); }

KeyedHashAfter::KeyedHashAfter(std::string beginning) : beginning_(std::move(beginning)) {
    State state{process_key()};
    for (std::size_t at = 0; at + 8 <= beginning_.size(); at += 8) {
        state.take(load<std::uint64_t>(beginning_.data() + at));
    }
    state_[0] = state.a;
    state_[1] = state.b;
    state_[2] = state.c;
    state_[3] = state.d;
}

std::uint64_t KeyedHashAfter::operator()(std::string_view rest) const {
    State state{state_[0], state_[1], state_[2], state_[3]};
    // Bytes that wait for others to make a whole word with.
    const std::size_t waiting = beginning_.size() % 8;
    std::uint64_t word = load_some(beginning_.data() + beginning_.size() - waiting, waiting);
    const std::size_t size = beginning_.size() + rest.size();
    const char* at = rest.data();
    std::size_t left = rest.size();
    const auto next = [&](std::uint64_t bytes) {
        state.take(word | (bytes << (8 * waiting)));
        word = waiting == 0 ? 0 : bytes >> (64 - 8 * waiting);
    };
    for (; left >= 8; left -= 8, at += 8) next(load<std::uint64_t>(at));
    const std::uint64_t bytes = load_some(at, left);
    if (waiting + left >= 8) {
        next(bytes);
    } else {
        word |= bytes << (8 * waiting);
    }
    return state.finish(word | size_byte(size));
}

}  // namespace hotcount
