#include <cstdint>
#include <hotcount/detail/base/codec.hpp>
#include <hotcount/op_id.hpp>

namespace hotcount {
namespace {

constexpr char kHexDigits[] = "0123456789ABCDEF";
constexpr std::string_view kPercent = "%25";

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

void append_hex(std::string& out, char c) {
    const auto byte = static_cast<unsigned char>(c);
    out += kHexDigits[byte >> 4];
    out += kHexDigits[byte & 15];
}

}  // namespace

std::string full_key(std::string_view store_prefix, std::string_view prefix, std::string_view key) {
    std::string full;
    full.reserve(store_prefix.size() + prefix.size() + 1 + key.size());
    full += store_prefix;
    if (!prefix.empty()) {
        full += prefix;
        full += ':';
    }
    full += key;
    return full;
}

std::string escape_part(std::string_view part) {
    std::string escaped;
    escaped.reserve(part.size());
    for (const char c : part) {
        if (c == '%' || c == ':') {
            escaped += '%';
            append_hex(escaped, c);
        } else {
            escaped += c;
        }
    }
    return escaped;
}

Result<std::string> encode_parts(std::span<const std::string_view> parts) {
    if (parts.empty()) return make_error(ErrorCode::config, "a tuple key needs at least one part");
    std::string key = "%";
    for (const std::string_view part : parts) {
        key += ':';
        key += escape_part(part);
    }
    return key;
}

std::string encode_plain(std::string_view key) {
    if (!key.starts_with('%')) return std::string{key};
    return std::string{kPercent}.append(key.substr(1));
}

Result<std::string> key_beside(std::string_view key, std::string_view what) {
    std::string name;
    name.reserve(key.size() + what.size() + 3);
    const auto open = key.find('{');
    const auto close = key.find('}', open == std::string_view::npos ? 0 : open);
    if (open == std::string_view::npos && close == std::string_view::npos) {
        return name.append("{").append(key).append("}:").append(what);
    }
    if (open == std::string_view::npos || close == std::string_view::npos || close == open + 1) {
        return make_error(ErrorCode::config,
                          "the key " + printable(key) +
                              " has braces that make no hash tag, so nothing can be kept beside "
                              "it in its slot")
            .about(&ErrorFacts::key, key);
    }
    // The "t" keeps the keys "a" and "{a}" apart.
    return name.append(key).append(":").append(what).append("t");
}

Result<std::string> percent_decode(std::string_view text, std::string_view what) {
    std::string decoded;
    decoded.reserve(text.size());
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] != '%') {
            decoded += text[i];
            continue;
        }
        const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
        const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
        if (high < 0 || low < 0) {
            return make_error(ErrorCode::config,
                              std::string{what} + " has a bad %-escape; write % itself as %25");
        }
        decoded += static_cast<char>(high * 16 + low);
        i += 2;
    }
    return decoded;
}

namespace {

// Hides the password of a URL: a URL may have been passed in a wrong place, or be a key.
std::string without_password(std::string_view text) {
    const std::size_t scheme = text.find("://");
    const std::size_t at = text.rfind('@');
    if (scheme == std::string_view::npos || at == std::string_view::npos) return std::string{text};
    const std::size_t colon = text.find(':', scheme + 3);
    if (colon > at) return std::string{text};
    return std::string{text.substr(0, colon + 1)} + "***" + std::string{text.substr(at)};
}

}  // namespace

std::string printable(std::string_view given) {
    constexpr std::size_t kMaxBytes = 80;
    const std::string text = without_password(given);
    std::string shown;
    for (const char c : std::string_view{text}.substr(0, kMaxBytes)) {
        if (c >= 0x20 && c < 0x7f) {
            shown += c;
        } else {
            shown += "\\x";
            append_hex(shown, c);
        }
    }
    if (text.size() > kMaxBytes) shown += "...";
    return shown;
}

// -- op_id.hpp: UUIDv7 ----------------------------------------------------------------------------

namespace {

constexpr std::size_t kUuidBytes = 36;
constexpr std::size_t kVersionAt = 14;
constexpr std::size_t kVariantAt = 19;

bool is_dash(std::size_t index) { return index == 8 || index == 13 || index == 18 || index == 23; }

}  // namespace

std::string new_op_id(WallTime now, Random& random) {
    const auto since_epoch =
        std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
    // 48 bits of time, 4 of version, 12 random; 2 of variant, 62 random.
    const std::uint64_t words[] = {
        static_cast<std::uint64_t>(since_epoch) << 16 | 0x7000 | (random.next() >> 52),
        std::uint64_t{2} << 62 | (random.next() >> 2)};
    std::string id;
    id.reserve(kUuidBytes);
    for (const std::uint64_t word : words) {
        for (int shift = 60; shift >= 0; shift -= 4) {
            if (is_dash(id.size())) id += '-';
            id += "0123456789abcdef"[(word >> shift) & 15];
        }
    }
    return id;
}

std::optional<std::chrono::milliseconds> made_at(std::string_view op_id) {
    if (op_id.size() != kUuidBytes || op_id[kVersionAt] != '7') return std::nullopt;
    std::uint64_t head = 0;  // The last 16 digits read.
    std::int64_t time = 0;
    for (std::size_t i = 0; i < kUuidBytes; ++i) {
        if (is_dash(i)) {
            if (op_id[i] != '-') return std::nullopt;
            continue;
        }
        const int digit = hex_value(op_id[i]);
        if (digit < 0) return std::nullopt;
        head = head << 4 | static_cast<std::uint64_t>(digit);
        if (i == kVersionAt - 2) time = static_cast<std::int64_t>(head);
    }
    // The variant's two bits are 10.
    if (hex_value(op_id[kVariantAt]) >> 2 != 2) return std::nullopt;
    return std::chrono::milliseconds{time};
}

}  // namespace hotcount
