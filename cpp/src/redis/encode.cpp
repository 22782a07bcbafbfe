#include "commands.hpp"

#include <charconv>
#include <cstring>

namespace hotcount::redis {
namespace {

// "$", the digits of a size and twice the end of a line.
constexpr std::size_t kMostAroundWord = 25;

char* put_header(char* at, char type, std::size_t number) {
    *at++ = type;
    at = std::to_chars(at, at + 20, number).ptr;
    *at++ = '\r';
    *at++ = '\n';
    return at;
}

char* put(char* at, std::string_view bytes) {
    std::memcpy(at, bytes.data(), bytes.size());
    return at + bytes.size();
}

// The header at `at`, which this client encoded, so it is valid.
std::size_t read_header(std::string_view commands, std::size_t& at) {
    std::size_t number = 0;
    const char* const start = commands.data() + at + 1;
    const char* const end = std::from_chars(start, commands.data() + commands.size(), number).ptr;
    at = static_cast<std::size_t>(end - commands.data()) + 2;
    return number;
}

}  // namespace

void encode_header(std::string& out, std::size_t words) {
    char header[24];
    out.append(header, put_header(header, '*', words));
}

void encode_word(std::string& out, std::string_view word) { encode_words(out, {&word, 1}); }

void encode_words(std::string& out, std::span<const std::string_view> words) {
    // One resize for all words: a batch has thousands.
    std::size_t size = 0;
    for (const std::string_view word : words) size += word.size() + kMostAroundWord;
    const std::size_t before = out.size();
    out.resize(before + size);
    char* at = out.data() + before;
    for (const std::string_view word : words) {
        at = put(put_header(at, '$', word.size()), word);
        at = put(at, "\r\n");
    }
    out.resize(static_cast<std::size_t>(at - out.data()));
}

void encode_command(std::string& out, std::span<const std::string_view> command) {
    encode_header(out, command.size());
    encode_words(out, command);
}

void encode_add(std::string& out, std::string_view key, std::int64_t n) {
    if (n == 1) {  // The most frequent add, with one argument less for the server to read.
        constexpr std::string_view kVerb = "*2\r\n$4\r\nINCR\r\n";
        const std::size_t before = out.size();
        out.resize(before + kVerb.size() + key.size() + 26);
        char* at = put(out.data() + before, kVerb);
        at = put(put_header(at, '$', key.size()), key);
        at = put(at, "\r\n");
        out.resize(static_cast<std::size_t>(at - out.data()));
        return;
    }
    char digits[24];
    const char* const end = std::to_chars(digits, digits + sizeof(digits), n).ptr;
    const std::string_view amount{digits, static_cast<std::size_t>(end - digits)};
    // One resize for all of it: a batch has thousands of these.
    constexpr std::string_view kVerb = "*3\r\n$6\r\nINCRBY\r\n";
    const std::size_t before = out.size();
    out.resize(before + kVerb.size() + key.size() + amount.size() + 52);
    char* at = put(out.data() + before, kVerb);
    at = put(put_header(at, '$', key.size()), key);
    at = put(at, "\r\n");
    at = put(put_header(at, '$', amount.size()), amount);
    at = put(at, "\r\n");
    out.resize(static_cast<std::size_t>(at - out.data()));
}

std::size_t end_of_first(std::string_view commands) {
    std::size_t at = 0;
    for (std::size_t words = read_header(commands, at); words > 0; --words) {
        const std::size_t size = read_header(commands, at);
        at += size + 2;
    }
    return at;
}

}  // namespace hotcount::redis
