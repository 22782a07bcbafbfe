#include "statement_name.hpp"

#include <array>

namespace hotcount::sql {

std::string statement_name(std::string_view scope, std::string_view text) {
    __extension__ using Hash = unsigned __int128;
    constexpr auto kPrime = (Hash{1} << 88U) + 0x13B;
    Hash hash = (Hash{0x6C62272E07BB0142} << 64U) + 0x62B821756295C58D;
    const auto add = [&](std::string_view part) {
        for (const char c : part) hash = (hash ^ static_cast<unsigned char>(c)) * kPrime;
        // So that no two pairs of parts read the same: neither has a NUL.
        hash *= kPrime;
    };
    add(scope);
    add(text);
    constexpr std::string_view kDigits = "0123456789abcdef";
    constexpr int kLength = 32;
    std::string name = "hotcount_";
    for (int i = kLength - 1; i >= 0; --i) {
        name += kDigits[static_cast<std::size_t>(hash >> (4U * static_cast<unsigned>(i))) & 0xFU];
    }
    return name;
}

}  // namespace hotcount::sql
