#include <hotcount/detail/base/check.hpp>
#include <hotcount/detail/base/codec.hpp>
#include <string>

namespace hotcount {

Result<void> check_key(std::string_view key, KeyRule rule) {
    if (key.empty()) return bad_option("key", "is empty; it takes 1 to 1000 bytes");
    if (key.size() > kMaxKeyBytes) {
        return bad_option("key", "is " + std::to_string(key.size()) +
                                     " bytes long; it takes 1 to 1000 bytes: " + printable(key))
            .about(&ErrorFacts::key, key);
    }
    if (rule != KeyRule::any_bytes && key.find('\0') != std::string_view::npos) {
        return bad_option("key", "has a NUL byte, which SQL text cannot hold: " + printable(key))
            .about(&ErrorFacts::key, key);
    }
    if (rule == KeyRule::utf8_text && !is_utf8(key)) {
        return bad_option("key",
                          "is not UTF-8, the only text that PostgreSQL holds: " + printable(key))
            .about(&ErrorFacts::key, key);
    }
    return {};
}

bool is_utf8(std::string_view bytes) {
    const auto at = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
    for (std::size_t i = 0; i < bytes.size();) {
        const unsigned char head = at(i);
        const std::size_t length = head < 0x80   ? 1
                                   : head < 0xc2 ? 0
                                   : head < 0xe0 ? 2
                                   : head < 0xf0 ? 3
                                   : head < 0xf5 ? 4
                                                 : 0;
        if (length == 0 || bytes.size() - i < length) return false;
        for (std::size_t k = 1; k < length; ++k) {
            if ((at(i + k) & 0xc0) != 0x80) return false;
        }
        if ((head == 0xe0 && at(i + 1) < 0xa0) || (head == 0xed && at(i + 1) > 0x9f) ||
            (head == 0xf0 && at(i + 1) < 0x90) || (head == 0xf4 && at(i + 1) > 0x8f)) {
            return false;
        }
        i += length;
    }
    return true;
}

Result<void> check_identifier(std::string_view option, std::string_view name) {
    if (name.empty()) return bad_option(option, "is empty");
    if (name.size() > kMaxIdentifierBytes) {
        return bad_option(option, "is longer than 63 bytes: " + printable(name), printable(name));
    }
    if (name.find('\0') != std::string_view::npos) {
        return bad_option(option, "has a NUL byte: " + printable(name), printable(name));
    }
    return {};
}

}  // namespace hotcount
