#include <openssl/sha.h>

#include <algorithm>
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

}  // namespace

Script::Script(std::string_view text, Kind kind, Fits fitting, std::size_t row)
    : text_(text), kind_(kind), fits_(fitting), row_(row) {
    unsigned char digest[SHA_DIGEST_LENGTH];
    SHA1(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
    constexpr char kHexDigits[] = "0123456789abcdef";
    for (const unsigned char byte : digest) {
        sha1_ += kHexDigits[byte >> 4];
        sha1_ += kHexDigits[byte & 15];
    }
}

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
        at = encoded_.find('\n', at) + 1;  // Behind "$", the size and the end of the line.
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
