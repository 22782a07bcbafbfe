#include <sys/random.h>

#include <bit>
#include <cstdlib>
#include <hotcount/detail/base/fork.hpp>
#include <hotcount/detail/base/hash.hpp>
#include <hotcount/detail/base/random.hpp>

namespace hotcount {
namespace {

// SplitMix64: spreads one seed over the four state words, none of which may all be zero.
std::uint64_t split_mix(std::uint64_t& state) {
    state += 0x9e3779b97f4a7c15;
    std::uint64_t mixed = state;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
}

// Out of line: inlined into keyed_hash(), its buffer would add a stack check to each hash.
[[gnu::noinline, gnu::cold]] std::uint64_t system_seed() {
    // std::random_device in a static libstdc++ needs arc4random of glibc 2.36.
    std::uint64_t seed = 0;
    if (getentropy(&seed, sizeof seed) != 0) std::abort();  // Fails only for more than 256 bytes.
    return seed;
}

const HashKey& process_key() {
    static const HashKey key = [] {
        const std::uint64_t first = system_seed();
        return HashKey{first, system_seed()};
    }();
    return key;
}

}  // namespace

Random::Random(std::uint64_t seed) {
    for (std::uint64_t& word : state_) word = split_mix(seed);
}

std::uint64_t Random::next() {
    const std::uint64_t result = std::rotl(state_[1] * 5, 7) * 9;
    const std::uint64_t shifted = state_[1] << 17;
    state_[2] ^= state_[0];
    state_[3] ^= state_[1];
    state_[1] ^= state_[2];
    state_[0] ^= state_[3];
    state_[2] ^= shifted;
    state_[3] = std::rotl(state_[3], 45);
    return result;
}

std::uint64_t Random::below(std::uint64_t bound) {
    // Lemire's method: the few values that would bias the result are drawn again.
    __extension__ using Wide = unsigned __int128;
    Wide product = Wide{next()} * bound;
    auto low = static_cast<std::uint64_t>(product);
    if (low < bound) {
        const std::uint64_t threshold = (0 - bound) % bound;
        while (low < threshold) {
            product = Wide{next()} * bound;
            low = static_cast<std::uint64_t>(product);
        }
    }
    return static_cast<std::uint64_t>(product >> 64);
}

double Random::unit() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }

Random& thread_random() {
    struct Seeded {
        std::uint64_t generation;
        Random random;
    };
    thread_local Seeded seeded{fork_generation(), Random{system_seed()}};
    if (seeded.generation != fork_generation()) {
        seeded = Seeded{fork_generation(), Random{system_seed()}};
    }
    return seeded.random;
}

// -- hashes of keys -------------------------------------------------------------------------------

std::uint64_t siphash13(HashKey key, std::string_view bytes) {
    detail::SipState state{key};
    const char* at = bytes.data();
    std::size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) state.take(detail::load<std::uint64_t>(at));
    return state.finish(detail::load_some(at, left) | (std::uint64_t{bytes.size()} << 56));
}

std::uint64_t keyed_hash(std::string_view bytes) { return siphash13(process_key(), bytes); }

KeyedHashAfter::KeyedHashAfter(std::string beginning)
    : beginning_(std::move(beginning)), state_(process_key()) {
    const char* at = beginning_.data();
    std::size_t left = beginning_.size();
    for (; left >= 8; left -= 8, at += 8) state_.take(detail::load<std::uint64_t>(at));
    waiting_ = detail::load_some(at, left);
    shift_ = static_cast<unsigned>(8 * left);
}

}  // namespace hotcount
