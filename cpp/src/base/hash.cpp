#include <hotcount/detail/base/hash.hpp>
#include <random>
#include <utility>

namespace hotcount {
namespace {

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
