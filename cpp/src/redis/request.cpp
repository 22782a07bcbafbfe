#include <openssl/sha.h>

#include <algorithm>
#include <array>
#include <hotcount/redis/request.hpp>

#include "encode.hpp"

namespace hotcount::redis {
namespace {

// Where nothing can have been applied, a lost reply is no unknown outcome.
bool only_reads(std::string_view upper_name) {
    static constexpr std::array kReaders{
        "GET",    "MGET",   "PING",  "EXISTS", "TTL",   "PTTL",   "STRLEN",    "TYPE",
        "ZSCORE", "ZRANGE", "ZCARD", "TIME",   "INFO",  "HGET",   "HMGET",     "HGETALL",
        "SCAN",   "DBSIZE", "LLEN",  "LRANGE", "ZRANK", "OBJECT", "ZREVRANGE", "ZREVRANK"};
    return std::find(kReaders.begin(), kReaders.end(), upper_name) != kReaders.end();
}

std::string upper(std::string_view text) {
    std::string result{text};
    std::transform(result.begin(), result.end(), result.begin(),
                   [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 32) : c; });
    return result;
}

}  // namespace

Script::Script(std::string_view text, Kind kind) : text_(text), kind_(kind) {
    unsigned char digest[SHA_DIGEST_LENGTH];
    SHA1(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest);
    constexpr char kHexDigits[] = "0123456789abcdef";
    for (const unsigned char byte : digest) {
        sha1_ += kHexDigits[byte >> 4];
        sha1_ += kHexDigits[byte & 15];
    }
}

Request Request::command(std::span<const std::string_view> words) {
    Request request{Kind::command};
    request.name_ = upper(words.front());
    if (only_reads(request.name_)) request.repeat_ = Repeat::reads;
    encode_command(request.bytes_, words);
    return request;
}

Request Request::commands(std::span<const std::vector<std::string_view>> commands) {
    Request request{Kind::batch};
    request.name_ = "a batch";
    request.replies_ = commands.size();
    request.repeat_ = Repeat::reads;
    for (const auto& words : commands) {
        if (!only_reads(upper(words.front()))) request.repeat_ = Repeat::never;
        encode_command(request.bytes_, words);
    }
    return request;
}

Request Request::encoded(std::string name, std::string bytes, std::size_t replies, Repeat repeat) {
    Request request{Kind::batch};
    request.name_ = std::move(name);
    request.bytes_ = std::move(bytes);
    request.replies_ = replies;
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
    Request request{Kind::script};
    request.name_ = "EVALSHA";
    request.repeat_ = repeat;
    request.script_ = &script;
    request.keys_.assign(keys.begin(), keys.end());
    for (const std::string_view argument : shared) encode_word(request.shared_, argument);
    request.shared_count_ = shared.size();
    for (const std::string_view argument : arguments) encode_word(request.bytes_, argument);
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
