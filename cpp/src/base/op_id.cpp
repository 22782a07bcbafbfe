#include <cstdint>
#include <hotcount/op_id.hpp>

namespace hotcount {
namespace {

constexpr std::size_t kLength = 36;
constexpr std::size_t kVersionAt = 14;
constexpr std::size_t kVariantAt = 19;

bool is_dash(std::size_t index) { return index == 8 || index == 13 || index == 18 || index == 23; }

int hex_value(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
}

}  // namespace

std::string new_op_id(WallTime now, Random& random) {
    const auto since_epoch =
        std::chrono::duration_cast<std::chrono::milliseconds>(now.time_since_epoch()).count();
    // 48 bits of time, 4 of version, 12 random; 2 of variant, 62 random.
    const std::uint64_t words[] = {
        static_cast<std::uint64_t>(since_epoch) << 16 | 0x7000 | (random.next() >> 52),
        std::uint64_t{2} << 62 | (random.next() >> 2)};
    std::string id;
    id.reserve(kLength);
    for (const std::uint64_t word : words) {
        for (int shift = 60; shift >= 0; shift -= 4) {
            if (is_dash(id.size())) id += '-';
            id += "0123456789abcdef"[(word >> shift) & 15];
        }
    }
    return id;
}

std::optional<std::chrono::milliseconds> made_at(std::string_view op_id) {
    if (op_id.size() != kLength || op_id[kVersionAt] != '7') return std::nullopt;
    std::uint64_t head = 0;  // The last 16 digits.
    std::int64_t time = 0;
    for (std::size_t i = 0; i < kLength; ++i) {
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
