#include "hdr_log.hpp"

#include <fmt/core.h>
#include <zlib.h>

#include <bit>
#include <cstddef>
#include <cstdint>
#include <new>

namespace hotcount::loadtest {
namespace {

// The low byte 0x13 or 0x14 says V2 as the tools write it.
constexpr std::uint32_t kPlainCookie = 0x1c849313;
constexpr std::uint32_t kCompressedCookie = 0x1c849314;

template <class Number>
void append(std::string& to, Number number) {
    for (int shift = 8 * (static_cast<int>(sizeof number) - 1); shift >= 0; shift -= 8) {
        to.push_back(static_cast<char>(static_cast<std::uint64_t>(number) >> shift));
    }
}

// ZigZag, then seven bits a byte; a ninth byte has eight.
void append_packed(std::string& to, std::int64_t number) {
    auto rest =
        (static_cast<std::uint64_t>(number) << 1) ^ static_cast<std::uint64_t>(number >> 63);
    for (int byte = 0; byte < 8; ++byte) {
        if (rest < 0x80) {
            to.push_back(static_cast<char>(rest));
            return;
        }
        to.push_back(static_cast<char>((rest & 0x7f) | 0x80));
        rest >>= 7;
    }
    to.push_back(static_cast<char>(rest));
}

std::string pack_counts(const Histogram& histogram) {
    std::string counts;
    std::int64_t zeros = 0;
    const std::size_t last = Histogram::cell_of(histogram.max());
    for (std::size_t cell = 0; cell <= last; ++cell) {
        const std::uint64_t count = histogram.count_in(cell);
        if (count == 0) {
            ++zeros;
            continue;
        }
        if (zeros > 0) append_packed(counts, -zeros);
        zeros = 0;
        append_packed(counts, static_cast<std::int64_t>(count));
    }
    return counts;
}

std::string compressed(const std::string& plain) {
    uLongf size = compressBound(static_cast<uLong>(plain.size()));
    std::string packed(size, '\0');
    // It fails for want of memory only: the room is what it asked for.
    if (compress(reinterpret_cast<Bytef*>(packed.data()), &size,
                 reinterpret_cast<const Bytef*>(plain.data()),
                 static_cast<uLong>(plain.size())) != Z_OK) {
        throw std::bad_alloc();
    }
    packed.resize(size);
    return packed;
}

std::string base64(const std::string& bytes) {
    constexpr std::string_view kDigits =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t at = 0; at < bytes.size(); at += 3) {
        std::uint32_t three = 0;
        for (std::size_t i = 0; i < 3; ++i) {
            three = three << 8 |
                    (at + i < bytes.size() ? static_cast<unsigned char>(bytes[at + i]) : 0U);
        }
        for (std::size_t i = 0; i < 4; ++i) {
            const bool beyond = at + i > bytes.size();
            text.push_back(beyond ? '=' : kDigits[three >> (18 - 6 * i) & 63]);
        }
    }
    return text;
}

}  // namespace

std::string encode_hdr(const Histogram& histogram) {
    const std::string counts = pack_counts(histogram);
    std::string plain;
    append(plain, kPlainCookie);
    append(plain, static_cast<std::uint32_t>(counts.size()));
    append(plain, std::uint32_t{0});  // The index is not moved.
    append(plain, std::uint32_t{3});  // Significant digits.
    append(plain, std::uint64_t{1});  // The least value that is told from 0.
    append(plain, static_cast<std::uint64_t>(Histogram::kLargest));
    append(plain, std::bit_cast<std::uint64_t>(1.0));  // Integers are the values themselves.
    plain += counts;
    const std::string packed = compressed(plain);
    std::string payload;
    append(payload, kCompressedCookie);
    append(payload, static_cast<std::uint32_t>(packed.size()));
    return base64(payload + packed);
}

std::string hdr_head(double started_s) {
    return fmt::format(
        "#[Histogram log format version 1.3]\n"
        "#[Values are nanoseconds; Interval_Max is in milliseconds]\n"
        "#[StartTime: {:.3f} (seconds since epoch)]\n"
        "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\","
        "\"Interval_Compressed_Histogram\"\n",
        started_s);
}

std::string hdr_line(std::string_view tag, double from_s, double length_s,
                     const Histogram& histogram) {
    return fmt::format("Tag={},{:.3f},{:.3f},{:.3f},{}\n", tag, from_s, length_s,
                       static_cast<double>(histogram.max()) * 1e-6, encode_hdr(histogram));
}

}  // namespace hotcount::loadtest
