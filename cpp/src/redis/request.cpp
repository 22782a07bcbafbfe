#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <hotcount/detail/base/random.hpp>
#include <hotcount/detail/redis/request.hpp>

#include "commands.hpp"

namespace hotcount::redis {
namespace {

std::string upper(std::string_view text) {
    std::string result{text};
    std::transform(result.begin(), result.end(), result.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    return result;
}

// SHA-1 (RFC 3174) as hex digits: the name by which EVALSHA finds a script. Not for security.
std::string sha1_of(std::string_view text) {
    std::string padded{text};
    padded += '\x80';
    padded.resize((padded.size() + 8 + 63) / 64 * 64);
    for (std::size_t i = 0; i < 8; ++i) {
        padded[padded.size() - 1 - i] = static_cast<char>(text.size() * 8 >> (8 * i));
    }
    std::array<std::uint32_t, 5> hash{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    std::array<std::uint32_t, 80> words{};
    for (std::size_t at = 0; at < padded.size(); at += 64) {
        for (std::size_t i = 0; i < 64; ++i) {
            const auto byte = static_cast<unsigned char>(padded[at + i]);
            words[i / 4] = words[i / 4] << 8 | byte;
        }
        for (std::size_t i = 16; i < 80; ++i) {
            words[i] = std::rotl(words[i - 3] ^ words[i - 8] ^ words[i - 14] ^ words[i - 16], 1);
        }
        auto [a, b, c, d, e] = hash;
        for (std::size_t i = 0; i < 80; ++i) {
            const std::uint32_t mixed = i < 20   ? ((b & c) | (~b & d)) + 0x5a827999
                                        : i < 40 ? (b ^ c ^ d) + 0x6ed9eba1
                                        : i < 60 ? ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc
                                                 : (b ^ c ^ d) + 0xca62c1d6;
            const std::uint32_t next = std::rotl(a, 5) + mixed + e + words[i];
            e = d;
            d = c;
            c = std::rotl(b, 30);
            b = a;
            a = next;
        }
        hash = {hash[0] + a, hash[1] + b, hash[2] + c, hash[3] + d, hash[4] + e};
    }
    constexpr char kHexDigits[] = "0123456789abcdef";
    std::string digits;
    for (const std::uint32_t word : hash) {
        for (int shift = 28; shift >= 0; shift -= 4) digits += kHexDigits[word >> shift & 15];
    }
    return digits;
}

}  // namespace

Script::Script(std::string_view text, Kind kind, Fits fitting, std::size_t row)
    : text_(text), sha1_(sha1_of(text)), kind_(kind), fits_(fitting), row_(row) {}

SharedArguments::SharedArguments(std::span<const std::string_view> words) {
    Words made{{}, words.size()};
    encode_words(made.encoded, words);
    words_ = std::make_shared<const Words>(std::move(made));
}

Request::Keys::Keys(std::span<const std::string_view> keys) : size_(keys.size()) {
    encode_words(encoded_, keys);
    if (size_ > 1) others_.reserve(size_ - 1);
    std::size_t at = 0;
    for (std::size_t i = 0; i < size_; ++i) {
        at = encoded_.find('\n', at) + 1;  // Skips "$<size>\r\n".
        const Place place{at, keys[i].size()};
        if (i == 0) {
            first_ = place;
        } else {
            others_.push_back(place);
        }
        at += place.size + 2;
    }
}

Request Request::command(std::span<const std::string_view> words) {
    Request request{Kind::command};
    request.name_ = upper(words.front());
    const KnownCommand known = known_command(words);
    request.shape_ = known.shape;
    request.goes_alone_ = known.place != Place::shared;
    if (known.only_reads) request.repeat_ = Repeat::reads;
    encode_command(request.bytes_, words);
    return request;
}

Request Request::commands(std::span<const std::vector<std::string_view>> commands) {
    Request request{Kind::batch};
    request.name_ = "a batch";
    request.replies_ = commands.size();
    request.repeat_ = Repeat::reads;
    request.shapes_.reserve(commands.size());
    for (const auto& words : commands) {
        const KnownCommand known = known_command(words);
        if (!known.only_reads) request.repeat_ = Repeat::never;
        request.shapes_ += static_cast<char>(known.shape);
        encode_command(request.bytes_, words);
    }
    return request;
}

Request Request::with_echo() && {
    Request request = std::move(*this);
    request.kind_ = Kind::batch;
    request.goes_alone_ = false;
    request.replies_ = 2;
    request.echo_ = "hotcount:" + std::to_string(thread_random().next());
    const std::string_view echo[] = {"ECHO", request.echo_};
    encode_command(request.bytes_, echo);
    return request;
}

Request Request::encoded(std::string name, std::string bytes, std::size_t replies, Shape shape,
                         Repeat repeat) {
    Request request{Kind::batch};
    request.name_ = std::move(name);
    request.bytes_ = std::move(bytes);
    request.replies_ = replies;
    request.shape_ = shape;
    request.repeat_ = repeat;
    return request;
}

Request Request::add(std::string key, std::int64_t n) {
    Request request{Kind::add};
    request.name_ = "INCRBY";
    request.key_ = std::move(key);
    request.n_ = n;
    return request;
}

Request Request::run(const Script& script, std::span<const std::string_view> keys,
                     std::span<const std::string_view> shared,
                     std::span<const std::string_view> arguments, Repeat repeat) {
    return run(script, keys, SharedArguments{shared}, arguments, repeat);
}

Request Request::run(const Script& script, std::span<const std::string_view> keys,
                     const SharedArguments& shared, std::span<const std::string_view> arguments,
                     Repeat repeat) {
    Request request{Kind::script};
    request.name_ = "EVALSHA";
    request.repeat_ = repeat;
    request.script_ = &script;
    request.keys_ = Keys{keys};
    request.shared_ = shared.words_;
    encode_words(request.bytes_, arguments);
    request.arguments_count_ = arguments.size();
    return request;
}

Request Request::run_many(const Script& script, std::size_t calls,
                          std::span<const std::string_view> keys,
                          std::span<const std::string_view> shared,
                          std::span<const std::string_view> arguments, Repeat repeat) {
    Request request = run(script, keys, shared, arguments, repeat);
    request.calls_ = calls;
    return request;
}

}  // namespace hotcount::redis
